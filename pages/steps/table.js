// A table of links. All that is shown is text: it comes from models and files.
const made = (name, text, attributes = {}) => {
  const one = document.createElement(name);
  if (text !== undefined) one.textContent = text;
  Object.entries(attributes).forEach(([key, value]) => value !== undefined && one.setAttribute(key, value));
  return one;
};

export default function ({ data, parentElement, setTriggerValue }) {
  const { caption, columns, rows, sort, descending } = data;
  const table = made("table");
  table.append(made("caption", caption));
  const heads = table.createTHead().insertRow();
  for (const { key, label, title, number } of columns) {
    const sorted = key === sort;
    const head = made("th", undefined, {
      scope: "col", class: number ? "number" : undefined,
      "aria-sort": sorted ? (descending ? "descending" : "ascending") : undefined,
    });
    if (key) {
      const button = made("button", `${label}${sorted ? (descending ? " ↓" : " ↑") : ""}`, { type: "button", title });
      button.onclick = () => setTriggerValue("sorted", key);
      head.append(button);
    } else head.append(made("span", label, { title }));
    heads.append(head);
  }
  const body = table.createTBody();
  for (const { step, link, cells } of rows) {
    const row = body.insertRow();
    row.dataset.step = step;
    cells.forEach(({ text, title, tone }, at) => {
      const cell = row.insertCell();
      if (columns[at].number) cell.className = "number";
      if (title) cell.title = title;
      if (tone) cell.dataset.tone = tone;
      cell.append(at === 0 ? made("a", text, { href: link, target: "_top" }) : text);
    });
    row.onclick = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || getSelection().toString()) return;
      event.preventDefault();
      setTriggerValue("opened", step);
    };
  }
  parentElement.querySelector(".steps").replaceChildren(table);
}

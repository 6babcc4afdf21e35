"""MemRL Inspector: `memrl app`, or `streamlit run app.py`."""

import streamlit as st

from memrl_core.agent.preferences import home_problem
from memrl_core.errors import MemRLError
from memrl_core.logs import logger
from pages import entry
from pages.shared import place
from pages.shared.text import failure_said, literal
from pages.shared.waiting import save_what_waits

st.set_page_config(page_title="MemRL Inspector", layout="wide")
st.html(entry.STYLE)
# What callbacks raise, Streamlit logs itself.
logger("streamlit.error_util")

page = entry.navigation(menu=entry.is_open())
if not entry.is_open():
    entry.wall()
    st.stop()
if problem := home_problem():
    st.warning(literal(problem), icon=":material/folder_off:")
try:
    with failure_said():
        entry.hear_history()
        place.follow()
        save_what_waits()
        page.run()
        entry.settle(page.title)
except MemRLError as error:
    st.error(literal(str(error)), icon=":material/error:")
    if st.button("Leave this bank and open the demo", key="leave"):
        st.session_state.pop("place", None)
        st.query_params.clear()
        st.switch_page("pages/home/page.py")
except Exception as error:
    logger(__name__).exception("a page failed")
    st.error(
        f"This page could not be drawn ({type(error).__name__}). Nothing that was saved is lost. Reload the page; if "
        "it stays, run memrl doctor in a terminal: the log there says more.",
        icon=":material/error:",
    )

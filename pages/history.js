const PATIENCE = 20000;

// Each press or key of the person makes one place at most: the server completes addresses, at the beginning, before and
// after a switch of screens and after Back, and Back would need a press for each of these, or never get past it.
function complete() {
  const push = history.pushState.bind(history);
  const parameters = (url) => [...new URL(url, location.href).searchParams].map(String).sort().join("\n");
  const isSame = (url) => new URL(url, location.href).pathname === location.pathname && parameters(url) === parameters(location.href);
  let acted = false;
  for (const act of ["pointerdown", "keydown"]) window.addEventListener(act, () => (acted = true), true);
  window.addEventListener("popstate", () => (acted = false), true);
  history.pushState = (state, title, url) => {
    if (acted && !isSame(url)) {
      push(state, title, url);
      acted = false;
    } else history.replaceState(state, title, url);
    window.memrlPath = location.pathname;
  };
  window.memrlPath = location.pathname;
  // The first address may have been completed before this listens.
  const first = performance.getEntriesByType("navigation")[0]?.name;
  if (first !== location.href) window.addEventListener("popstate", (event) => {
    if (location.href !== first) return;
    event.stopImmediatePropagation();
    history.back();
  }, true);
  return true;
}

// After Back on a busy machine a fragment of the screen that was left can be answered late. Streamlit then throws away
// what it draws, and its page stays blank. The address is right already.
function mend() {
  window.addEventListener("error", (event) => {
    if (!/bad delta path index/i.test(event.message)) return;
    const last = Number(sessionStorage.getItem("memrlMended"));
    if (Date.now() - last < PATIENCE) return;
    sessionStorage.setItem("memrlMended", Date.now());
    location.reload();
  });
  return true;
}

export default function ({ setStateValue }) {
  window.memrlCompletes ??= complete();
  window.memrlMends ??= mend();
  // Reported before Streamlit asks for that address: else the server takes it for one that it has moved on from.
  const popped = () => {
    const stays = window.memrlPath === location.pathname;
    window.memrlPath = location.pathname;
    if (stays) setStateValue("popped", Date.now());
  };
  // Streamlit ends only the last of this function's runs, and a change of theme runs it again.
  window.memrlUnpopped?.();
  window.addEventListener("popstate", popped, true);
  window.memrlUnpopped = () => window.removeEventListener("popstate", popped, true);
  return window.memrlUnpopped;
}

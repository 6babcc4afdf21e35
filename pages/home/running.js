// Home's picture: the memory of the playground while it learns. Where no motion is wanted, a memory that has learned.

const A_SECOND = 3;
// By then there is something to recall.
const BEGIN = 30;

export default function ({ parentElement }) {
  const canvas = parentElement.querySelector("canvas");
  if (canvas.dataset.steps !== undefined) return;
  const still = window.matchMedia("(prefers-reduced-motion: reduce)"), run = runOf(coreOf(defaults()));
  let t = BEGIN, phase = 0, last = 0;
  canvas.dataset.steps = String(t);
  function frame(time) {
    if (!canvas.isConnected) return;
    phase += (Math.min(time - last, 1000) / 1000) * A_SECOND;
    last = time;
    while (phase >= 1) {
      phase -= 1;
      t = t + 1 < LENGTH ? t + 1 : BEGIN;
    }
    canvas.dataset.steps = String(t);
    canvas.dim = true;
    paintMap(canvas, run, t, qAfter(run, t), phase);
    requestAnimationFrame(frame);
  }
  function resting() {
    t = LENGTH / 2;
    canvas.dataset.steps = String(t);
    paintMap(canvas, run, t, qAfter(run, t), 0);
  }
  if (still.matches) {
    const sized = new ResizeObserver(resting);
    sized.observe(canvas);
    return () => sized.disconnect();
  }
  requestAnimationFrame((time) => {
    last = time;
    frame(time);
  });
}

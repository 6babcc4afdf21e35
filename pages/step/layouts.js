// The same memories on the map in force and on a proposed one: what is pointed at, marked or moved on one is on both.

const NOTHING_RUNS = [0, 0, 0, 0, 0, 0, 0, 0];

class Layouts {
  constructor(host) {
    this.parts = window.memrlStageParts;
    const { el } = this.parts;
    this.root = el("section", "stage layouts", host);
    this.root.setAttribute("aria-label", "Old and new layout of the map");
    const maps = el("div", "layouts-maps", this.root);
    this.hovered = this.pinned = null;
    this.sides = ["Old map", "New map"].map((name) => {
      const figure = el("figure", "", maps);
      el("figcaption", "", figure, name);
      const box = el("div", "layouts-map", figure);
      const side = { box };
      side.map = new this.parts.MemoryMap(box, {
        hover: (n) => this.light(n),
        pin: (n) => this.light(n, true),
        select: (numbers) => this.mark(numbers),
        redraw: () => this.follow(side),
        walk: () => {},
      });
      return side;
    });
    el("p", "stage-caption", this.root, "Turned to fit each other (Procrustes). Point at a memory to see it on both; Shift and drag around some to see where they went; drag and zoom move both.");
    new ResizeObserver(() => this.table && this.draw()).observe(this.root);
  }

  update(table, data) {
    this.table = table;
    const { memories } = table;
    const x = data.x.map((at, n) => (at === null ? null : memories.x[n]));
    const both = [{ layout: "old", x, y: memories.y }, { layout: data.id, x: data.x, y: data.y }];
    this.models = both.map((places) => new this.parts.Model({ ...table, before: data.before, memories: { ...memories, ...places } }));
    this.hovered = this.pinned = null;
    this.draw();
  }

  draw() {
    const theme = this.parts.themeOf(this.root);
    this.root.dataset.theme = theme;
    const groups = this.models.flatMap((model) => model.groups);
    this.sides.forEach(({ map, box }, i) => {
      map.framed = groups;
      map.layout(box.clientWidth, box.clientHeight, this.models[i], theme);
      map.setStep(0);
    });
    this.redraw();
  }

  // What a person did to one map, on the other too.
  follow({ map }) {
    for (const side of this.sides) {
      if (side.map === map || !map.view) continue;
      side.map.view = { ...map.view };
      side.map.openGroup(map.open);
    }
    this.redraw();
  }

  mark(numbers) {
    for (const { map } of this.sides) map.marked = numbers.length ? new Set(numbers) : null;
    for (const { map } of this.sides) map.dirty = true;
    this.redraw();
  }

  light(n, stays = false) {
    if (stays) this.pinned = n === this.pinned ? null : n;
    else this.hovered = n;
    for (const { map } of this.sides) {
      const shown = this.hovered ?? this.pinned;
      if (shown === null) map.openGroup(-1);
      else map.show(shown);
    }
    this.redraw();
  }

  redraw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      const lit = new Set([this.hovered, this.pinned].filter((n) => n !== null));
      const ids = [...lit].map((n) => this.models[0].ids[n]);
      for (const { map } of this.sides) map.render(NOTHING_RUNS, lit);
      for (const node of this.root.querySelectorAll("[data-memory]")) node.classList.toggle("stage-lit", ids.includes(node.dataset.memory));
    });
  }
}

export default function ({ parentElement, data }) {
  const host = parentElement.querySelector(".layouts-host");
  const turn = (host.turn = (host.turn ?? 0) + 1);
  const look = () => {
    if (host.turn !== turn) return;
    const table = window.memrlStageParts && window.memrlStageTables?.[data.key];
    if (!table) return void (host.isConnected && setTimeout(look, 30));
    host.layouts ??= new Layouts(host);
    if (host.shown !== `${data.key} ${data.id}`) {
      host.layouts.update(table, data);
      host.scrollIntoView({ block: "end" }); // It opens below the stage.
    }
    host.shown = `${data.key} ${data.id}`;
  };
  look();
}

// A drawing of docs/road/steps.json with a slider: which element each work-item loads and reads, step by step.
(() => {
  const figure = document.currentScript.previousElementSibling;
  const { sides: [rows, columns, depth], out, frames } = JSON.parse(figure.querySelector("script").textContent);
  const cell = Math.min(20, 480 / (depth + columns)), gap = 24, right = depth * cell + gap, below = right + 16;
  const places = { A: [0, below, depth, rows], B: [right, 16, columns, depth], out: [right, below, columns, rows] };
  const width = right + columns * cell + 4, height = below + rows * cell + 4;
  const add = (parent, name, values, words = "") => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(values)) node.setAttribute(key, value);
    node.textContent = words;
    return parent.appendChild(node);
  };
  const box = (parent, [matrix, row, column, kind, label, high = 1, wide = 1]) => {
    const [left, top] = places[matrix], x = left + column * cell, y = top + row * cell;
    add(parent, "rect", { x, y, width: wide * cell, height: high * cell, class: kind });
    if (label) add(parent, "text", { x: x + cell / 2, y: y + cell / 2 + 4, class: "label" }, label);
  };
  const picture = document.createElement("span");
  picture.innerHTML = '<svg role="img"></svg><span class="words" aria-live="polite"></span>';
  const [svg, words] = picture.children;
  svg.setAttribute("viewBox", `-2 0 ${width} ${height}`);
  svg.style.maxWidth = `${1.1 * width}px`;
  for (const [matrix, [left, top, wide, high]] of Object.entries(places)) {
    add(svg, "text", { x: left, y: top - 4 }, matrix);
    if (cell < 6) svg.classList.add("tiny"), box(svg, [matrix, 0, 0, "rest", "", high, wide]);
    else for (let at = 0; at < wide * high; ++at) box(svg, [matrix, Math.floor(at / wide), at % wide, "rest", ""]);
  }
  const group = add(svg, "g", {});
  const slider = Object.assign(document.createElement("input"), { type: "range", min: 0, max: frames.length - 1, value: 0 });
  slider.setAttribute("aria-label", "step");
  const show = () => {
    const frame = frames[slider.value];
    group.replaceChildren();
    for (const touched of [...out, ...frame.cells]) box(group, touched);
    words.textContent = frame.words.join(" ");
  };
  slider.addEventListener("input", show);
  figure.replaceChildren(slider, picture);
  show();
})();

// Elements. Text is always set as text: no value of a table is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** An HTML element with attributes (`on…` are listeners) and children, which may be text. */
export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** A button. */
export function button(label, onclick, attributes) {
  return el("button", { type: "button", onclick, ...attributes }, label);
}

/** A group of buttons, one of which is chosen. */
export function choice(label, options, chosen, choose) {
  const group = el("div", { class: "choice", role: "radiogroup", "aria-label": label });
  for (const [value, text] of options) {
    const select = () => {
      for (const other of group.children) other.setAttribute("aria-checked", "false");
      item.setAttribute("aria-checked", "true");
      choose(value);
    };
    const item = button(text, select, {
      role: "radio",
      "aria-checked": String(value === chosen),
      "data-value": value,
    });
    group.append(item);
  }
  return el("div", { class: "labeled" }, el("span", { class: "label" }, label), group);
}

/** A table: titles, rows of cells (text or elements), and which columns are numbers. */
export function grid(titles, rows, numbers = []) {
  const side = (n) => (numbers.includes(n) ? "number" : null);
  return el(
    "div",
    { class: "scroll" },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, titles.map((t, n) => el("th", { class: side(n) }, t)))),
      el(
        "tbody",
        {},
        rows.map((row) => el("tr", {}, row.map((cell, n) => el("td", { class: side(n) }, cell)))),
      ),
    ),
  );
}

/** NULL is not a text. */
export function cell(value) {
  return value === null ? el("span", { class: "null" }, "NULL") : value;
}

export function card(title, ...children) {
  return el("section", { class: "card" }, title && el("h2", {}, title), ...children);
}

export function failure(error) {
  return el("p", { class: "failure", role: "alert" }, error.message);
}

const tip = () => document.getElementById("tip");

/** Show a card next to the pointer, or next to an element. */
export function showTip(x, y, ...children) {
  const node = tip();
  node.replaceChildren(...children);
  node.hidden = false;
  const box = node.getBoundingClientRect();
  const left = Math.max(8, Math.min(x + 14, window.innerWidth - box.width - 8));
  const below = y + 18 + box.height < window.innerHeight;
  node.style.left = `${left}px`;
  node.style.top = `${below ? y + 18 : Math.max(8, y - box.height - 12)}px`;
}

export function hideTip() {
  tip().hidden = true;
}

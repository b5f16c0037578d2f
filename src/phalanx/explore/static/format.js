// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en-US");

export const count = (number) => (number === null ? "?" : whole.format(number));

export function things(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

export const leaves = (number) => things(number, "leaf", "leaves");

/** 1,234,567 as 1.23 M. */
export function short(number) {
  if (number === null) return "?";
  for (const [size, unit] of [[1e12, " T"], [1e9, " B"], [1e6, " M"], [1e4, " k"]]) {
    if (Math.abs(number) >= size) {
      const scaled = number / (unit === " k" ? 1e3 : size);
      return scaled.toFixed(scaled < 10 ? 2 : scaled < 100 ? 1 : 0) + unit;
    }
  }
  return count(number);
}

export function size(bytes) {
  if (bytes === null) return "?";
  let amount = bytes;
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (amount < 1000 || unit === "TB") {
      return unit === "B" ? `${amount} B` : `${amount.toFixed(amount < 10 ? 2 : 1)} ${unit}`;
    }
    amount /= 1000;
  }
  return "";
}

export function percent(part, all) {
  if (!all) return "0%";
  const share = (100 * part) / all;
  return `${share > 0 && share < 0.1 ? "<0.1" : share > 99.9 && part < all ? "99.9" : share.toFixed(share < 10 ? 1 : 0)}%`;
}

/** A time in UTC, to the second. */
export const time = (text) => `${text.slice(0, 10)} ${text.slice(11, 19)}`;

export const measure = (value, by) => (by === "bytes" ? size(value) : count(value));

export const shortMeasure = (value, by) => (by === "bytes" ? size(value) : short(value));

/** A node of the partition tree by its last value. */
export function nodeName(node) {
  if (node.field === null) return `spec v${node.spec}`;
  return `${node.field} = ${node.value === null ? "NULL" : node.value}`;
}

export const nodeValue = (node) =>
  node.field === null ? `spec v${node.spec}` : node.value === null ? "NULL" : node.value;

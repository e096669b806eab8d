// Plots as SVG text, without dependencies: bars in groups and lines over a logarithmic axis.

const colours = ["#2563eb", "#9ca3af", "#16a34a", "#d97706", "#9333ea", "#0d9488", "#dc2626"];
const style = 'font-family="sans-serif" font-size="11"';

function escaped(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

function short(value) {
  if (value >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (value >= 1e3) return `${Number((value / 1e3).toPrecision(3))}k`;
  return String(Number(value.toPrecision(3)));
}

function frame(width, height, title, body) {
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  const heading = `<text x="10" y="18" font-size="14">${escaped(title)}</text>`;
  const paper = `<rect width="${width}" height="${height}" fill="white"/>`;
  const start = `<svg xmlns="http://www.w3.org/2000/svg" ${size} ${style}>`;
  return `${[start, paper, heading, ...body, "</svg>"].join("\n")}\n`;
}

function legend(series, x) {
  return series.flatMap((name, index) => {
    const y = 34 + 16 * index;
    return [
      `<rect x="${x}" y="${y - 9}" width="10" height="10" fill="${colours[index]}"/>`,
      `<text x="${x + 15}" y="${y}">${escaped(name)}</text>`,
    ];
  });
}

/** Horizontal bars. `groups`: `{ name, values }` with a value, or undefined, for each of `series`. */
export function barPlot({ title, series, groups }) {
  const all = groups.flatMap(({ values }) => values).filter((value) => value > 0);
  const low = 10 ** Math.floor(Math.log10(Math.min(...all)));
  const high = Math.max(...all);
  const left = 130;
  const width = 900;
  const span = width - left - 170;
  const bar = 11;
  const scale = (value) => (span * Math.log(value / low)) / Math.log(high / low || 10);
  const body = legend(series, width - 100);
  let y = 34;
  for (const { name, values } of groups) {
    body.push(`<text x="${left - 8}" y="${y + 11}" text-anchor="end">${escaped(name)}</text>`);
    values.forEach((value, index) => {
      if (!(value > 0)) return;
      const length = Math.max(1, scale(value)).toFixed(1);
      const top = y + bar * index;
      const fill = colours[index];
      body.push(`<rect x="${left}" y="${top}" width="${length}" height="9" fill="${fill}"/>`);
      const at = (left + Number(length) + 4).toFixed(1);
      body.push(`<text x="${at}" y="${top + 9}" font-size="9">${short(value)}</text>`);
    });
    y += bar * series.length + 10;
  }
  return frame(width, y + 10, title, body);
}

/** Lines of `{ name, points: [x, y][] }` over a logarithmic x; y begins at 0. */
export function linePlot({ title, xLabel, yLabel, series }) {
  const points = series.flatMap((one) => one.points);
  const xs = points.map(([x]) => x);
  const [low, high] = [Math.min(...xs), Math.max(...xs)];
  const top = Math.max(...points.map(([, y]) => y)) * 1.1;
  const box = { left: 60, top: 30, width: 560, height: 260 };
  const at = ([x, y]) => {
    const share = high === low ? 0 : Math.log(x / low) / Math.log(high / low);
    const px = box.left + box.width * share;
    return [px.toFixed(1), (box.top + box.height * (1 - y / top)).toFixed(1)];
  };
  const bottom = box.top + box.height;
  const right = box.left + box.width;
  const body = [
    `<path d="M${box.left} ${box.top}V${bottom}H${right}" fill="none" stroke="#6b7280"/>`,
    `<text x="${box.left + box.width / 2}" y="${bottom + 34}">${escaped(xLabel)}</text>`,
    `<text x="${right + 10}" y="${bottom}">${escaped(yLabel)}</text>`,
    ...legend(
      series.map(({ name }) => name),
      right + 10,
    ),
  ];
  for (const x of new Set(xs)) {
    const [px] = at([x, 0]);
    body.push(`<text x="${px}" y="${bottom + 16}" text-anchor="middle">${short(x)}</text>`);
  }
  for (const share of [0.25, 0.5, 0.75, 1]) {
    const value = top * share;
    const [, py] = at([low, value]);
    body.push(`<text x="${box.left - 6}" y="${py}" text-anchor="end">${short(value)}</text>`);
  }
  series.forEach(({ points: own }, index) => {
    const path = own.map((point) => at(point).join(" ")).join("L");
    body.push(`<path d="M${path}" fill="none" stroke="${colours[index]}" stroke-width="2"/>`);
  });
  return frame(800, bottom + 50, title, body);
}

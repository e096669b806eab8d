// Tables and plots of `bench:peers`: a row for each scenario, with the ratio that was asked for.

import { peerScenarios } from "./peer-scenarios.mjs";
import { barPlot } from "./plot.mjs";

const thousand = 1000;

export function rateText(rate) {
  if (rate === undefined) return "-";
  if (rate >= thousand * thousand) return `${(rate / (thousand * thousand)).toFixed(2)} M`;
  if (rate >= 100 * thousand) return `${Math.round(rate / thousand)} k`;
  if (rate >= thousand) return `${(rate / thousand).toFixed(1)} k`;
  return String(Math.round(rate));
}

function find(lines, scenario, broker, place) {
  return lines.find(
    (line) => line.scenario === scenario && line.broker === broker && line.place === place,
  );
}

/** What was asked and what came of it: `{ text, isMet }`; undefined where nothing was asked. */
export function verdict(lines, scenario, place) {
  const ours = find(lines, scenario.name, "flagstone", place);
  if (ours === undefined) return undefined;
  if (scenario.atMost !== undefined) {
    const parts = scenario.atMost.map(({ figure, us }) => ({
      text: `${figure} ${inMs(ours.latencyUs?.[figure])} (<= ${inMs(us)})`,
      isMet: ours.latencyUs?.[figure] <= us,
    }));
    return {
      text: parts.map((part) => part.text).join(", "),
      isMet: parts.every((part) => part.isMet),
    };
  }
  const { ratio, peer, of = scenario.name } = scenario.atLeast;
  const theirs = find(lines, of, peer, place);
  if (theirs === undefined) return undefined;
  const got = ours.rate / theirs.rate;
  return { text: `${got.toFixed(2)} x ${peer} (>= ${ratio})`, isMet: got >= ratio };
}

function inMs(us) {
  return us === undefined ? "-" : `${(us / thousand).toFixed(2)} ms`;
}

function costText(line) {
  if (line === undefined) return "-";
  const syncs = line.acksPerSync === undefined ? "" : `, ${line.acksPerSync} acks/sync`;
  const bytes = line.writtenBytes === undefined ? "" : `, ${line.writtenBytes} B`;
  return `${line.cpuUs} us${bytes}${syncs}`;
}

export function peersTable(lines) {
  const places = [...new Set(lines.map((line) => line.place).filter(Boolean))];
  return places.map((place) => tableOf(lines, place)).join("\n");
}

function tableOf(lines, place) {
  const names = [...new Set(lines.map((line) => line.broker).filter(Boolean))];
  const title = place === "pinned" ? "Broker on one core, load on the other" : "Both cores free";
  const head = `| scenario | ${names.join(" | ")} | asked | met | Flagstone, each | p99 | RSS MiB |`;
  const rows = peerScenarios
    .filter(({ name }) => names.some((broker) => find(lines, name, broker, place)))
    .map((scenario) => {
      const rates = names.map((broker) => {
        const line = find(lines, scenario.name, broker, place);
        const isWrong = line?.lost || line?.reorder || line?.dup_unflagged || line?.conn_lost;
        return `${rateText(line?.rate)}${isWrong ? " (faults)" : ""}`;
      });
      const ours = find(lines, scenario.name, "flagstone", place);
      const asked = verdict(lines, scenario, place);
      const met = asked === undefined ? "-" : asked.isMet ? "yes" : "no";
      const cells = [scenario.name, ...rates, asked?.text ?? "-", met, costText(ours)];
      return `| ${[...cells, inMs(ours?.latencyUs?.p99), ours?.rssMib ?? "-"].join(" | ")} |`;
    });
  const rule = `|${"---|".repeat(names.length + 6)}`;
  return `${title}, per second:\n\n${[head, rule, ...rows].join("\n")}\n`;
}

/** Rates of all brokers, a group of bars for each scenario, logarithmic. */
export function peersPlot(lines) {
  const place = lines.some((line) => line.place === "pinned") ? "pinned" : "free";
  const names = [...new Set(lines.map((line) => line.broker).filter(Boolean))];
  const groups = peerScenarios
    .filter(({ name }) => names.some((broker) => find(lines, name, broker, place)))
    .map(({ name }) => ({
      name,
      values: names.map((broker) => find(lines, name, broker, place)?.rate),
    }));
  const title = place === "pinned" ? "messages/s, broker on one core" : "messages/s, free cores";
  return barPlot({ title, series: names, groups });
}

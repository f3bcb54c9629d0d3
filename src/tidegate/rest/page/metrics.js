/* Metrics that the program's own functions have added, as charts. */

import { html, useState, useEffect, useRef } from './vendor/preact-htm/standalone.module.js';
import { Chart } from './chart.js';
import { ask, pause, POLL_MS, compact, number_or_null } from './model.js';

const REMEMBERED = 600;
/** A rate looks back over so many answers: slots tell their counts no more often than one comes. */
const RATE_LOOKS = 6;
const CHARTS_MAX = 24;
const COLOURS = ['--read', '--written', '--wait'];

/** Values of each metric as they come; they begin when somebody looks. */
class Series {
  constructor() {
    this.times = [];
    this.known = new Map();
  }

  take({ now, metrics }) {
    this.times = [...this.times, now / 1000].slice(-REMEMBERED);
    const told = new Map(metrics.map((each) => [[each.step, each.operator, each.name].join('\n'), each]));
    for (const key of told.keys()) if (!this.known.has(key)) this.known.set(key, { lines: {}, sums: [] });
    for (const [key, series] of this.known) {
      const lines = { ...told.get(key)?.lines };
      series.metric = told.get(key) ?? series.metric;
      if ('sum' in lines) {
        series.total = lines.sum;
        // A restart begins at nothing, and is no fall.
        if (series.sums.at(-1)?.sum > lines.sum) series.sums = [];
        series.sums = [...series.sums, { at: now / 1000, sum: lines.sum }].slice(-RATE_LOOKS);
        const [first] = series.sums;
        if (now / 1000 > first.at) lines['a second'] = (lines.sum - first.sum) / (now / 1000 - first.at);
        delete lines.sum;
        series.lines['a second'] ??= [];
      }
      for (const name of new Set([...Object.keys(series.lines), ...Object.keys(lines)])) {
        const values = series.lines[name] ?? [];
        const missing = Array(Math.max(this.times.length - 1 - values.length, 0)).fill(null);
        series.lines[name] = [...missing, ...values, number_or_null(lines[name])].slice(-REMEMBERED);
      }
    }
  }
}

export function Metrics({ picture }) {
  const series = useRef(new Series());
  const [shown, setShown] = useState({ asked: false, trouble: '' });
  const [wanted, setWanted] = useState('');
  const { id, left } = picture.job;
  useEffect(() => {
    let on = true;
    (async () => {
      while (on) {
        let trouble = '';
        try {
          series.current.take(await ask(`jobs/${id}/own-metrics`));
        } catch (error) {
          trouble = error.message;
        }
        if (on) setShown({ asked: true, trouble });
        await pause(document.hidden || left ? 10 * POLL_MS : POLL_MS);
      }
    })();
    return () => { on = false; };
  }, [id, left]);
  const every = [...series.current.known.values()].filter((each) => each.metric);
  const found = every.filter(({ metric }) => `${metric.step} ${metric.operator} ${metric.name}`.toLowerCase().includes(wanted.toLowerCase()));
  const told = shown.trouble && html`<p class="trouble" role="alert">${shown.trouble}</p>`;
  if (!shown.asked) return html`<p class="empty" role="status">Loading the metrics …</p>`;
  if (!every.length) return told || html`<p class="empty">The program's functions have added no metrics. <code>runtime_context.get_metrics_group().counter("name")</code> adds one.</p>`;
  return html`
    ${told}
    ${every.length > 6 && html`<div class="picks"><label>Only those with <input value=${wanted} onInput=${(event) => setWanted(event.target.value)} /></label></div>`}
    ${found.length > CHARTS_MAX && html`<p class="faint">${CHARTS_MAX} of ${found.length} are drawn.</p>`}
    <div class="charts">${found.slice(0, CHARTS_MAX).map((each) => html`<${Own} key=${[each.metric.step, each.metric.operator, each.metric.name].join('\n')} series=${each} times=${series.current.times} />`)}</div>`;
}

function Own({ series, times }) {
  const { metric, lines, total } = series;
  const drawn = Object.entries(lines).map(([label, values], index) => ({ label, values, colour: COLOURS[index] }));
  return html`
    <section class="panel">
      <h2>${metric.name} <small>${metric.kind}${total !== undefined && html`, <b>${typeof total === 'number' ? compact(total) : total}</b> in all`}</small></h2>
      <p class="faint">${metric.operator || metric.step}, ${metric.subtasks} ${metric.subtasks === 1 ? 'task' : 'tasks'}</p>
      ${drawn.length > 0 && html`<${Chart} key=${Object.keys(lines).join()} times=${times} series=${drawn} unit="" />`}
    </section>`;
}

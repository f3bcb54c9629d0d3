/* Charts over time. */

import { html, useEffect, useRef } from './vendor/preact-htm/standalone.module.js';
import uPlot from './vendor/uplot/uPlot.esm.js';
import { compact } from './model.js';

const HEIGHT = 190;
/** Seconds between two times that are written below a chart. */
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];
const dark = matchMedia('(prefers-color-scheme: dark)');
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Lines over time. series: `{label, values, colour}`, colours by the name of a CSS variable. unit: said behind a value. */
export function Chart({ times, series, unit = ' a second' }) {
  const place = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(series, place.current.clientWidth), [[], ...series.map(() => [])], place.current);
    };
    draw();
    const sized = new ResizeObserver(() => plot.current.setSize({ width: place.current.clientWidth, height: HEIGHT }));
    sized.observe(place.current);
    dark.addEventListener('change', draw);
    return () => { sized.disconnect(); dark.removeEventListener('change', draw); plot.current.destroy(); };
  }, []);
  useEffect(() => {
    plot.current.setData([times, ...series.map((each) => each.values)]);
    if (plot.current.cursor.idx == null) plot.current.setLegend({ idx: times.length - 1 });
  }, [times]);
  const told = series.map(({ label, values }) => `${label}: ${values.at(-1) == null ? 'nothing yet' : `${compact(values.at(-1))}${unit}`}`).join(', ');
  return html`<div class="chart" ref=${place} role="img" aria-label=${`Chart of the last ten minutes. Now ${told}.`}></div>`;
}

function options(series, width) {
  const axis = { stroke: colour('--faint'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line'), width: 1 } };
  return {
    width,
    height: HEIGHT,
    cursor: { y: false },
    scales: { y: { range: (_, __, most) => [0, Math.max(most * 1.1, 1)] } },
    axes: [{ ...axis, values: '{HH}:{mm}:{ss}', space: 90, incrs: SECONDS }, { ...axis, size: 56, values: (_, ticks) => ticks.map(compact) }],
    series: [{ value: '{HH}:{mm}:{ss}' }, ...series.map(({ label, colour: name }) => ({
      label, stroke: colour(name), width: 2, points: { show: false }, value: (_, value) => (value == null ? '' : compact(value)),
    }))],
  };
}

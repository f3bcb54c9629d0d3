/* State by step, task and name: how much there is, and what grows. */

import { html, useState, useEffect } from './vendor/preact-htm/standalone.module.js';
import { HotKeys } from './hotkeys.js';
import { KeyGroups } from './groups.js';
import { ask, pause, POLL_MS, bytes, whole, percent, moment, growth } from './model.js';

const EVERY_MS = 5 * POLL_MS;
/** Growth a minute that is marked: bytes, and a share of all state. */
const MUCH = 1000;
const MUCH_OF_ALL = 0.001;

export function HeldState({ watched, picture }) {
  const [{ held, trouble }, setHeld] = useState({ held: null, trouble: '' });
  const { id, left } = picture.job;
  useEffect(() => {
    let on = true;
    (async () => {
      for (; on; await pause(document.hidden ? 4 * EVERY_MS : EVERY_MS)) {
        try {
          const found = await ask(`jobs/${id}/state`);
          if (on) setHeld({ held: found, trouble: '' });
          if (left) return;
        } catch (error) {
          if (on) setHeld((shown) => ({ ...shown, trouble: error.message }));
        }
      }
    })();
    return () => { on = false; };
  }, [id, left]);
  const told = trouble && html`<p class="trouble" role="alert">${trouble}</p>`;
  if (picture.job.tasks && held?.checkpoint == null) return html`${told}<p class="empty">The state of a batch lives in its tasks while they run; sizes appear with the savepoint that it may end with.</p><${HotKeys} picture=${picture} />`;
  if (held === null) return told || html`<p class="empty" role="status">Loading the state …</p>`;
  if (held.checkpoint === null) return html`${told}<p class="empty">State sizes appear after the first completed checkpoint.</p><${HotKeys} picture=${picture} />`;
  const total = held.steps.reduce((sum, each) => sum + each.bytes, 0);
  const fastest = Math.max(...held.steps.map((each) => each.grown_a_minute ?? 0));
  const grows = (each) => fastest > Math.max(MUCH, MUCH_OF_ALL * total) && each.grown_a_minute === fastest;
  return html`
    ${told}
    <section class="figures" aria-label="All state">
      <p><b>${bytes(total)}</b> in checkpoint ${held.checkpoint}</p><p class="faint">${moment(held.at)}</p>
    </section>
    <section class="panel">
      <h2>By step, the largest first</h2>
      <div class="scrolled"><table>
        <thead><tr>${['Step', 'State', 'Share', 'Growth', 'Largest task'].map((head) => html`<th key=${head} scope="col">${head}</th>`)}</tr></thead>
        <tbody>${held.steps.map((each) => html`
          <tr key=${each.id}>
            <td>${each.step} <small>${each.parallelism} ${each.parallelism === 1 ? 'task' : 'tasks'}</small></td>
            <td>${bytes(each.bytes)}</td>
            <td>${total ? percent(each.bytes / total) : '–'}</td>
            <td class=${grows(each) ? 'bad' : ''}>${growth(each.grown_a_minute)}${grows(each) ? ', the fastest' : ''}</td>
            <td>${each.largest && each.bytes > 0 ? html`${each.largest.task}<small>${bytes(each.largest.bytes)}, ${(each.largest.bytes * each.parallelism / each.bytes).toFixed(1)} times the mean</small>` : '–'}</td>
          </tr>`)}
        </tbody>
      </table></div>
    </section>
    <${Names} steps=${held.steps} />
    <${KeyGroups} watched=${watched} picture=${picture} />
    <${HotKeys} picture=${picture} />`;
}

function Names({ steps }) {
  const names = steps.flatMap((each) => each.states).sort((a, b) => b.entries - a.entries);
  if (!names.length) return html`<p class="faint">Entries and bytes by name are known only for state kept in memory (HashMap backend).</p>`;
  return html`
    <section class="panel">
      <h2>By name, in memory</h2>
      <div class="scrolled"><table>
        <thead><tr>${['State', 'Operator', 'Entries now', 'Bytes in the newest snapshot'].map((head) => html`<th key=${head} scope="col">${head}</th>`)}</tr></thead>
        <tbody>${names.map((each) => html`<tr key=${each.operator + each.name}><td><code>${each.name}</code></td><td>${each.operator}</td><td>${each.entries === null ? '–' : whole(each.entries)}</td><td>${each.bytes === null ? '–' : bytes(each.bytes)}</td></tr>`)}</tbody>
      </table></div>
    </section>`;
}

/* The keys on which the operators of a step spend most of their time. */

import { html, useState, useEffect } from './vendor/preact-htm/standalone.module.js';
import { ask, pause, POLL_MS, percent, whole } from './model.js';

const EVERY_MS = 2 * POLL_MS;

export function HotKeys({ picture }) {
  const { id } = picture.job;
  const keyed = picture.vertices.filter((each) => picture.edges.some((edge) => edge.to === each.id && edge.how === 'HASH'));
  const [step, choose] = useState('');
  const [{ found, trouble }, show] = useState({ found: null, trouble: '' });
  useEffect(() => {
    show({ found: null, trouble: '' });
    if (!step) return undefined;
    let on = true;
    (async () => {
      for (; on; await pause(EVERY_MS)) {
        if (document.hidden) continue;
        try {
          const told = await ask(`jobs/${id}/vertices/${step}/hot-keys`);
          if (on) show({ found: told, trouble: '' });
        } catch (error) {
          if (on) show((shown) => ({ ...shown, trouble: error.message }));
        }
      }
    })();
    return () => { on = false; };
  }, [id, step]);
  if (!keyed.length || picture.job.left || picture.job.ended) return false;
  return html`
    <section class="panel">
      <h2>Hottest keys</h2>
      <label>Step <select value=${step} onChange=${(event) => choose(event.target.value)}>
        <option value="">none</option>
        ${keyed.map((each) => html`<option key=${each.id} value=${each.id}>${each.name}</option>`)}
      </select></label>
      <p class="faint">While a step is selected, its slots sample the key being processed 80 times a second. Vectorized steps have no current key.</p>
      ${trouble && html`<p class="trouble" role="alert">${trouble}</p>`}
      ${step && found && !found.keys.length && html`<p class="empty" role="status">No key sampled yet.</p>`}
      ${found?.keys.length > 0 && html`<div class="scrolled"><table>
        <thead><tr>${['Key', 'Operator', 'Task', 'Share of time'].map((head) => html`<th key=${head} scope="col">${head}</th>`)}</tr></thead>
        <tbody>${found.keys.map((each) => html`<tr key=${`${each.operator} ${each.subtask} ${each.key}`}>
          <th scope="row"><code>${each.key}</code></th><td>${each.operator}</td><td>${each.subtask + 1}</td><td>${percent(each.share)}</td></tr>`)}</tbody>
      </table></div><p class="faint">${whole(found.samples)} samples with a current key, of the last minute at most</p>`}
    </section>`;
}

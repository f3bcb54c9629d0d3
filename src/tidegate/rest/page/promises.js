/* What the job's sinks promise after a failure, and what the job costs. */

import { html } from './vendor/preact-htm/standalone.module.js';

export function Promises({ picture }) {
  const { sinks, job } = picture;
  return html`
    ${sinks.length > 0 && html`
      <section class="panel">
        <h2>Delivery guarantees of sinks</h2>
        <div class="scrolled"><table>
          <thead><tr><th scope="col">Sink</th><th scope="col">Guarantee</th><th scope="col">Why, and what it needs</th></tr></thead>
          <tbody>${sinks.map((each) => html`
            <tr key=${each.sink}>
              <th scope="row">${each.sink}</th><td>${each.guarantee}</td>
              <td>${each.why.map((why) => html`<p>since ${why}</p>`)}${each.provided.map((what) => html`<p>provided that ${what}</p>`)}</td>
            </tr>`)}
          </tbody>
        </table></div>
      </section>`}
    ${job.costs && html`<section class="panel"><h2>Resources used so far</h2><p>${job.costs}.</p></section>`}`;
}

/* What has failed: when, where, why, and what to do. */

import { html } from './vendor/preact-htm/standalone.module.js';
import { moment } from './model.js';

export function Failures({ picture }) {
  if (!picture.failures.length) return html`<p class="empty">Nothing has failed.</p>`;
  return html`${picture.failures.map((failure) => html`
    <article class="panel failure" key=${failure.at + failure.task}>
      <h2>${failure.kind}${failure.task && html` <small>in ${failure.task}</small>`}</h2>
      <p class="faint">${moment(failure.at)}${failure.slot && html`, slot ${failure.slot}`}${Object.entries(failure.labels).map(([key, value]) => html` <span class="label">${key}: ${value}</span>`)}</p>
      <pre>${failure.error}</pre>
      ${failure.concurrent.length > 0 && html`<details><summary>${failure.concurrent.length} more while it was handled</summary>
        ${failure.concurrent.map((one) => html`<h3>${one.kind}${one.task && ` in ${one.task}`}</h3><pre>${one.error}</pre>`)}</details>`}
    </article>`)}`;
}

/* The settings in force, searched as they are typed. */

import { html, useState, useEffect } from './vendor/preact-htm/standalone.module.js';
import { ask } from './model.js';

export function Settings({ watched }) {
  const [settings, set] = useState(null);
  const [wanted, want] = useState('');
  const [trouble, setTrouble] = useState('');
  useEffect(() => {
    ask(`jobs/${watched.id}/config`)
      .then((found) => set(Object.entries(found['execution-config']['user-config']).sort()))
      .catch((error) => setTrouble(error.message));
  }, []);
  const shown = settings?.filter((each) => each.join(' ').toLowerCase().includes(wanted.toLowerCase()));
  return html`
    <section class="panel">
      <h2>Configuration set for this job</h2>
      ${trouble && html`<p class="trouble" role="alert">${trouble}</p>`}
      <label>Search <input type="search" value=${wanted} onInput=${(event) => want(event.target.value)} /></label>
      ${shown?.length === 0 && html`<p class="empty">${settings.length ? 'No setting matches.' : 'Nothing set; all options have their defaults.'}</p>`}
      ${shown?.length > 0 && html`<div class="scrolled"><table><tbody>${shown.map(([key, value]) => html`<tr key=${key}><th scope="row"><code>${key}</code></th><td>${value}</td></tr>`)}</tbody></table></div>`}
    </section>`;
}

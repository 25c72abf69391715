// Runs AMP Toolbox against the vectors, as an example of how to use them. It fails if a vector does
// not say where the toolbox differs.
//
//	npm ci --prefix e2e/peers && node conformance/toolbox.mjs
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
const require = createRequire(new URL('../e2e/peers/', import.meta.url)); // where npm has installed it
const {createCurlsSubdomain, createCacheUrl} = require('@ampproject/toolbox-cache-url');
const ampCors = require('@ampproject/toolbox-cors');

console.warn = () => {}; // the toolbox logs each denial

const read = name => JSON.parse(readFileSync(new URL(name, import.meta.url), 'utf8'));
let wrong = 0;
function compare(what, vectors) { // each vector: [name, what the toolbox gives, what the vector says of it, whether it differs]
	for (const [name, got, want] of vectors.filter(([, got, want]) => got !== want)) console.log(`${what}: ${name}: ${got}; want ${want}`, wrong++);
	console.log(`${what}: ${vectors.length} vectors; toolbox differs from ${vectors.filter(v => v[3]).length}`);
}

compare('prefixes', await Promise.all(read('prefixes.json').prefixes.flatMap(({domain, prefixes = []}) => prefixes
	.filter(form => form.by?.includes('toolbox-cache-url'))
	.map(async form => [domain, await createCurlsSubdomain(`https://${domain}`), form.prefix, !form.by.includes('ampcors')]))));

const sites = /^https:\/\/(www\.example\.com|xn--bcher-kva\.ch|(.+\.)?example\.net)$/; // the policy "credentialed"
const caches = {list: async () => [{cacheDomain: 'cdn.ampproject.org'}, {cacheDomain: 'www.bing-amp.com'}]};
const middleware = ampCors({sourceOriginPattern: sites}, caches);
async function answerTo({headers = [], query = '__amp_source_origin=https%3A%2F%2Fwww.example.com'}) {
	let answer = 'denies', allowed;
	const response = {setHeader: (name, value) => allowed ??= name === 'Access-Control-Allow-Origin' && value, status: () => ({end() {}})};
	const fields = {}; // as Node.js has them
	for (const [name, value] of headers.map(header => header.split(/: (.*)/s))) fields[name] = name in fields ? `${fields[name]}, ${value}` : value;
	await middleware({method: 'GET', url: `/?${query}`, headers: fields}, response, () => answer = allowed ? 'allows' : 'passes');
	return answer;
}
function answerOf({status, response = []}) {
	if (status) return status < 300 ? 'answers' : 'denies';
	return response.some(header => header.startsWith('Access-Control-Allow-Origin')) ? 'allows' : 'passes';
}
compare('requests', await Promise.all(read('requests.json').requests.filter(v => v.policy === 'credentialed')
	.map(async v => [v.name, await answerTo(v), v.toolbox ?? answerOf(v), v.toolbox])));

compare('cache URLs', await Promise.all(read('cacheurls.json').cacheURLs.filter(v => v.source === 'toolbox')
	.map(async v => [v.url, await createCacheUrl('cdn.ampproject.org', v.url, v.type === 'v' ? 'viewer' : null), v.published ?? v.cacheURL, v.published])));
process.exit(wrong ? 1 : 0);

// Compares AMP Toolbox with the vectors, as an example of how to use them. It fails if the toolbox
// does something else than the vectors say that it does.
//
//	node conformance/toolbox.mjs [folder with node_modules]
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';

const require = createRequire(path.resolve(process.argv[2] ?? 'e2e/peers') + '/');
const {createCurlsSubdomain, createCacheUrl} = require('@ampproject/toolbox-cache-url');
const ampCors = require('@ampproject/toolbox-cors');
console.warn = () => {}; // the toolbox logs each denial

const read = file => JSON.parse(readFileSync(new URL(file, import.meta.url), 'utf8'));
const results = {};
// ampcors is what ampcors gives, and instead is what the vector says of the toolbox, if that differs.
function compare(file, name, got, ampcors, instead) {
	results[file] ??= {compared: 0, different: 0};
	results[file].compared++;
	if (instead) results[file].different++;
	if (got === (instead ?? ampcors) && instead !== ampcors) return;
	console.log(`${file}: ${name}: ${got}; ampcors ${ampcors}; the toolbox should give ${instead}`);
	process.exitCode = 1;
}

for (const {domain, prefixes = []} of read('prefixes.json').prefixes) {
	const by = implementation => prefixes.find(form => form.by?.includes(implementation))?.prefix;
	const ampcors = by('ampcors'), toolbox = by('toolbox-cache-url');
	if (toolbox) compare('prefixes.json', domain, await createCurlsSubdomain(`https://${domain}`), ampcors, toolbox === ampcors ? undefined : toolbox);
}

for (const {url, type, source, cacheURL, instead} of read('cacheurls.json').cacheURLs) {
	if (source === 'toolbox') compare('cacheurls.json', url, await createCacheUrl('cdn.ampproject.org', url, type === 'v' ? 'viewer' : null), cacheURL, instead);
}

// What the policy "credentialed" allows, as the toolbox is told.
const publishers = /^https:\/\/(www\.example\.com|xn--bcher-kva\.ch|(.+\.)?example\.net)$/;
const cacheList = {list: async () => [{cacheDomain: 'cdn.ampproject.org'}, {cacheDomain: 'www.bing-amp.com'}]};
const middleware = ampCors({sourceOriginPattern: publishers}, cacheList);
for (const vector of read('requests.json').requests.filter(vector => vector.policy === 'credentialed')) {
	const {name, method, query = '', headers = [], status, response = []} = vector;
	const fields = {}; // as Node.js has them
	for (const [key, value] of headers.map(header => header.split(/: (.*)/s))) fields[key] = key in fields ? `${fields[key]}, ${value}` : value;
	let got = 'denies', isAllowed = false;
	const answer = {setHeader: key => isAllowed ||= key === 'Access-Control-Allow-Origin', status: () => ({end() {}})};
	await middleware({method, url: `/?${query}`, headers: fields}, answer, () => got = isAllowed ? 'allows' : 'passes');
	const passes = response.some(header => header.startsWith('Access-Control-Allow-Origin')) ? 'allows' : 'passes';
	const ampcors = !status ? passes : status === 204 ? 'answers' : 'denies';
	compare('requests.json', name, got, ampcors, vector.toolbox);
}
for (const [file, {compared, different}] of Object.entries(results)) console.log(`${file}: ${compared} compared, ${different} different`);

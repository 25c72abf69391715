// Reads URLs, one on each line as a JSON string. Writes the URL of Google's AMP Cache for each, by
// the URL standard as Node implements it and the domain prefix of @ampproject/toolbox-cache-url;
// an empty line for what is not the http or https URL of a page on its default port.
import readline from 'node:readline';
import cache from '@ampproject/toolbox-cache-url';

for await (const line of readline.createInterface({input: process.stdin})) {
	const input = JSON.parse(line);
	let url = null;
	try {
		url = new URL(input);
	} catch {}
	if (!url || !/^https?:$/.test(url.protocol) || url.port || url.username || url.password) {
		console.log('');
		continue;
	}
	url.hash = '';
	// The standard escapes ^ in paths since 2024, Node not yet.
	url.pathname = url.pathname.replaceAll('^', '%5E');
	const prefix = await cache.createCurlsSubdomain(url.origin);
	let page = url.href.slice(url.protocol.length + 2);
	// An empty path is kept as it is written, as the toolbox does.
	if (!/^https?:\/\/[^/?#]*\//i.test(input)) page = page.replace('/', '');
	console.log(`https://${prefix}.cdn.ampproject.org/c/${url.protocol === 'https:' ? 's/' : ''}${page}`);
}

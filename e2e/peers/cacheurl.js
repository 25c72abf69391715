// Reads URLs, one on each line as a JSON string. Writes the URL of Google's AMP Cache for each, by
// the URL standard as Node implements it and the domain prefix of @ampproject/toolbox-cache-url.
// Writes an empty line if the URL is not http or https, has a port that is not the default, or has
// user information.
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
	// Since 2024, the standard escapes ^ in paths. Node 20 does not.
	url.pathname = url.pathname.replaceAll('^', '%5E');
	const prefix = await cache.createCurlsSubdomain(url.origin);
	let page = url.href.slice(url.protocol.length + 2);
	// An empty path stays empty, as in the toolbox; class URL makes it "/".
	if (!/^https?:\/\/[^/?#]*\//i.test(input)) page = page.replace('/', '');
	console.log(`https://${prefix}.cdn.ampproject.org/c/${url.protocol === 'https:' ? 's/' : ''}${page}`);
}

// Reads host names, one on each line. Writes for each, separated by spaces: the host as class URL
// of Node has it, its domain prefix by @ampproject/toolbox-cache-url, and its readable domain prefix
// by the algorithm of AMP's document. A prefix is "-" if there is none. Writes an empty line for a
// host that class URL rejects.
import readline from 'node:readline';
import cache from '@ampproject/toolbox-cache-url';
import punycode from 'punycode/punycode.js';

// https://amp.dev/documentation/guides-and-tutorials/learn/amp-caches-and-cors/amp-cache-urls/
function byDocument(host) {
	let text;
	try {
		text = punycode.toUnicode(host);
	} catch {
		return '-';
	}
	text = text.replaceAll('-', '--').replaceAll('.', '-');
	const characters = [...text];
	if (characters[2] === '-' && characters[3] === '-') text = `0-${text}-0`;
	const prefix = /^[\0-\x7f]*$/.test(text) ? text : 'xn--' + punycode.encode(text);
	return prefix.length <= 63 ? prefix : '-';
}

let lines = [];
for await (const input of readline.createInterface({input: process.stdin})) {
	let line = '';
	try {
		const host = new URL(`https://${input}`).hostname;
		line = `${host} ${await cache.createCurlsSubdomain('https://' + host).catch(() => '-')} ${byDocument(host)}`;
	} catch {}
	lines.push(line);
	if (lines.length === 10_000) {
		console.log(lines.join('\n'));
		lines = [];
	}
}
if (lines.length) console.log(lines.join('\n'));

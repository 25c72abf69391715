// The API of the tests, for gateways: it does what the handler in site_test.go does, and
// sets CORS headers of its own, which are wrong. A gateway must replace them.
//
//	node backend.mjs <host:port to listen on> <file with a font>
//
// GET /runs returns what it did since the last GET /runs. It is for the tests, not for pages.
import {readFileSync} from 'node:fs';
import {createServer} from 'node:http';

const [listen, fontFile] = process.argv.slice(2);
const font = readFileSync(fontFile);
let runs = [];

const answers = {
	'GET /api/read': (request, response, done) => {
		done('read');
		response.setHeader('Content-Type', 'application/json');
		response.setHeader('AMP-Redirect-To', 'https://www.example.com/thanks');
		response.setHeader('X-Internal', 'not for pages');
		response.end(JSON.stringify({cookie: hasCookie(request)}) + '\n');
	},
	'GET /api/font.ttf': (request, response) => {
		response.setHeader('Content-Type', 'font/ttf');
		response.setHeader('Cache-Control', 'public, max-age=60');
		response.end(font);
	},
	'GET /runs': (request, response) => {
		response.end(runs.join(', '));
		runs = [];
	},
};

const hasCookie = request => /(^|; )reader=/.test(request.headers.cookie || '');

createServer((request, response) => {
	const path = new URL(request.url, 'http://host').pathname;
	const done = what => runs.push(what + (hasCookie(request) ? ' as reader' : ''));
	response.setHeader('Access-Control-Allow-Origin', '*');
	response.setHeader('Access-Control-Allow-Headers', '*');
	response.setHeader('Access-Control-Expose-Headers', 'X-Internal');
	response.setHeader('Access-Control-Max-Age', '86400');
	response.setHeader('Vary', 'Accept-Encoding');
	const answer = answers[`${request.method} ${path}`];
	if (answer) {
		answer(request, response, done);
	} else if (path === '/api/write' && ['POST', 'PUT', 'DELETE'].includes(request.method)) {
		let body = '';
		request.on('data', part => body += part);
		request.on('end', () => {
			done(`${request.method} ${body}`);
			response.end('written');
		});
	} else {
		response.statusCode = 404;
		response.end();
	}
}).listen({host: listen.slice(0, listen.lastIndexOf(':')), port: Number(listen.slice(listen.lastIndexOf(':') + 1))});

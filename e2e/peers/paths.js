// Runs a backend with the paths /news/ of www.example.com and /shop/ of shop.example. It answers with the route that it chose,
// whether its handler ran, and for which publisher.
//
//	node paths.js <host:port to listen on> raw|cleaned|express <file with the function "only">
import {readFileSync} from 'node:fs';
import {createServer} from 'node:http';
import {posix} from 'node:path';
import express from 'express';

const [listen, kind, file] = process.argv.slice(2);
const only = new Function(readFileSync(file, 'utf8') + '\nreturn only;')();
const owners = {news: 'www.example.com', shop: 'shop.example'};

const choose = (name) => (req, res, next) => { res.set('X-Route', name); next(); };
const run = (req, res) => { res.set('X-Ran', 'true'); res.json({}); };
const app = express();
app.use((req, res, next) => { res.set('X-For', req.get('Ampcors-Publisher') ?? ''); next(); });
for (const name in owners) app.use('/' + name, choose(name), only(owners[name]), run);

function plain(req, res) {
	const caller = req.headers['ampcors-publisher'] ?? '';
	res.setHeader('X-For', caller);
	let path = req.url.split('?')[0];
	if (kind === 'cleaned') {
		try { path = decodeURIComponent(path); } catch { /* it stays as it is */ }
		path = posix.normalize(path.replaceAll('\\', '/'));
	}
	const name = Object.keys(owners).find((name) => path.startsWith('/' + name + '/'));
	if (!name) { res.statusCode = 404; res.end(); return; }
	res.setHeader('X-Route', name);
	if (caller && caller !== owners[name]) res.statusCode = 403;
	else res.setHeader('X-Ran', 'true');
	res.end('{}');
}

createServer(kind === 'express' ? app : plain).listen({host: listen.slice(0, listen.lastIndexOf(':')), port: Number(listen.slice(listen.lastIndexOf(':') + 1))});

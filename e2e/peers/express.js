// Runs Express: first the code of a file, then an API that answers every request with {}.
//
//	node express.js <host:port to listen on> <file with the code, which uses app>
import {readFileSync} from 'node:fs';
import express from 'express';

const [listen, file] = process.argv.slice(2);
const app = express();
new Function('app', readFileSync(file, 'utf8'))(app);
app.use((request, response) => response.json({}));
app.listen({host: listen.slice(0, listen.lastIndexOf(':')), port: Number(listen.slice(listen.lastIndexOf(':') + 1))});

// Runs Express: first the code of a file, then an API that answers every request with {}.
//
//	node express.js <host:port to listen on> <file with the code, which uses app> <express or express5>
import {readFileSync} from 'node:fs';

const [listen, file, version] = process.argv.slice(2);
const {default: express} = await import(version);
const app = express();
new Function('app', readFileSync(file, 'utf8'))(app);
app.use((request, response) => response.json({}));
app.listen({host: listen.slice(0, listen.lastIndexOf(':')), port: Number(listen.slice(listen.lastIndexOf(':') + 1))});

// Validates vectors with ajv: the files of the arguments by schema.json, which is among them.
import {readFileSync} from 'node:fs';
import path from 'node:path';
import {Ajv2020} from 'ajv/dist/2020.js';

const read = name => JSON.parse(readFileSync(name, 'utf8'));
const name = process.argv.find(name => path.basename(name) === 'schema.json');
const ajv = new Ajv2020();
const validate = ajv.compile(read(name));
const files = process.argv.slice(2).filter(file => file !== name);
for (const file of files) {
	if (!validate(read(file))) {
		console.log(file, validate.errors);
		process.exit(1);
	}
}
if (validate({$schema: 'schema.json', about: '', unknown: 1})) throw new Error('everything is valid');
console.log(`${files.length} files are valid`);

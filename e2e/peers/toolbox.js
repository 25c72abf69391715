// Runs @ampproject/toolbox-cors in front of another server.
//
//	node toolbox.js <host:port to listen on> <host:port of the API> <options in JSON>
//
// A sourceOriginPattern in the options is a string here.
import http from 'node:http';
import ampCors from '@ampproject/toolbox-cors';

const [listen, upstream, json] = process.argv.slice(2);
const options = JSON.parse(json);
if (options.sourceOriginPattern) options.sourceOriginPattern = new RegExp(options.sourceOriginPattern);
// It would fetch this list from the network when the first request comes.
const caches = {list: async () => [{cacheDomain: 'cdn.ampproject.org'}, {cacheDomain: 'www.bing-amp.com'}]};
const middleware = ampCors(options, caches);

const address = s => ({host: s.slice(0, s.lastIndexOf(':')), port: Number(s.slice(s.lastIndexOf(':') + 1))});
http.createServer((request, response) => {
	response.status = code => { // as Express has it
		response.statusCode = code;
		return response;
	};
	middleware(request, response, () => {
		const {method, url: path, headers} = request;
		request.pipe(http.request({...address(upstream), method, path, headers}, answer => {
			for (const [name, value] of Object.entries(answer.headers)) response.setHeader(name, value);
			response.statusCode = answer.statusCode;
			answer.pipe(response);
		}));
	});
}).listen(address(listen));

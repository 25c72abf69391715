// A backend that knows nothing of CORS. The gateway tells it whose page calls.
const http = require('http');

http.createServer((request, response) => {
	response.setHeader('Content-Type', 'application/json');
	response.end(JSON.stringify({for: request.headers['ampcors-publisher'] || null}) + '\n');
}).listen(process.env.PORT || 3000, '127.0.0.1');

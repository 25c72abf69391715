package probe

import (
	"fmt"
	"regexp"
	"strings"
)

// A Snippet is configuration or code that makes a server allow the publisher's pages.
type Snippet struct {
	Server string `json:"server"` // such as "nginx"
	Text   string `json:"text"`
}

// Snippets returns snippets for common servers that allow only these origins, and answer their
// preflights. A publisher has up to five origins on the default caches: for many publishers, put
// ampcors in front.
func Snippets(origins []string) []Snippet {
	lines := func(format string) string {
		var b strings.Builder
		for _, origin := range origins {
			fmt.Fprintf(&b, format, origin)
		}
		return b.String()
	}
	var alternatives []string
	for _, origin := range origins {
		alternatives = append(alternatives, regexp.QuoteMeta(origin))
	}
	return []Snippet{
		{"nginx", `# in http { }
map_hash_bucket_size 256;
map $http_origin $amp_origin {
    default "";
` + lines("    \"%s\" $http_origin;\n") + `}
map $amp_origin $amp_credentials {
    default "true";
    "" "";
}
map "$request_method $amp_origin" $amp_preflight {
    default "";
    "~^OPTIONS ." 1;
}
map $amp_preflight $amp_methods {
    default "";
    1 "GET, POST";
}
map $amp_preflight $amp_headers {
    default "";
    1 Content-Type;
}
# in the location of the API; nginx sends no header whose value is empty
add_header Access-Control-Allow-Origin $amp_origin always;
add_header Access-Control-Allow-Credentials $amp_credentials always;
add_header Access-Control-Expose-Headers AMP-Redirect-To always;
add_header Access-Control-Allow-Methods $amp_methods always;
add_header Access-Control-Allow-Headers $amp_headers always;
add_header Vary Origin always;
if ($amp_preflight) {
    return 204;
}
`},
		{"Apache", `# with mod_headers, mod_rewrite and mod_setenvif
SetEnvIf Origin "^(` + strings.Join(alternatives, "|") + `)$" AMP_ORIGIN=$1
Header always set Access-Control-Allow-Origin "%{AMP_ORIGIN}e" env=AMP_ORIGIN
Header always set Access-Control-Allow-Credentials true env=AMP_ORIGIN
Header always set Access-Control-Expose-Headers AMP-Redirect-To env=AMP_ORIGIN
Header always set Access-Control-Allow-Methods "GET, POST" env=AMP_ORIGIN
Header always set Access-Control-Allow-Headers Content-Type env=AMP_ORIGIN
Header always merge Vary Origin
RewriteEngine On
RewriteCond %{REQUEST_METHOD} =OPTIONS
RewriteCond %{ENV:AMP_ORIGIN} .
RewriteRule ^ - [R=204,L]
`},
		{"Express", `const ampOrigins = new Set([
` + lines("  '%s',\n") + `]);
app.use((req, res, next) => {
  res.vary('Origin');
  const origin = req.get('Origin');
  if (ampOrigins.has(origin)) {
    res.set('Access-Control-Allow-Origin', origin);
    res.set('Access-Control-Allow-Credentials', 'true');
    res.set('Access-Control-Expose-Headers', 'AMP-Redirect-To');
    if (req.method === 'OPTIONS' && req.get('Access-Control-Request-Method')) {
      res.set('Access-Control-Allow-Methods', 'GET, POST');
      res.set('Access-Control-Allow-Headers', 'Content-Type');
      return res.sendStatus(204);
    }
  } else if (origin && req.method !== 'GET' && req.method !== 'HEAD') {
    return res.sendStatus(403);
  }
  next();
});
`},
		{"Caddy", `@amp header_regexp Origin ^(` + strings.Join(alternatives, "|") + `)$
header Vary Origin
header @amp {
	Access-Control-Allow-Origin {http.request.header.Origin}
	Access-Control-Allow-Credentials true
	Access-Control-Expose-Headers AMP-Redirect-To
	Access-Control-Allow-Methods "GET, POST"
	Access-Control-Allow-Headers Content-Type
}
route @amp {
	@preflight method OPTIONS
	respond @preflight 204
}
`},
	}
}

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ampcors/ampcors/authz"
	"github.com/ampcors/ampcors/internal/gatewaytest"
	"github.com/ampcors/ampcors/internal/servertest"
)

// aroundNginx are directives of nginx's own modules that can change a subrequest, an answer, a header or a cache, as a site may
// have them around the configuration of package authz. $OPEN is a backend that nobody asks ampcors about.
var aroundNginx = []struct {
	http, server string // what stands in the http block, and in the server
	refused      bool   // nobody gets in: what it does cannot be switched off
}{
	{},
	// What decides whether a request may go on.
	{server: "satisfy any; allow all;"},
	{server: "satisfy any; allow 127.0.0.1; deny all;"},
	{server: "deny all;", refused: true},
	{server: "auth_request /login.html;"},
	{server: "auth_request off;"},
	{server: "auth_request_set $ampcors_status 200;"},
	{server: "auth_request_set $ampcors_publisher www.example.com;"},
	{server: "auth_basic staff; auth_basic_user_file USERS;", refused: true},
	{server: "auth_basic off; auth_delay 1ms;"},
	{server: "satisfy any; auth_basic staff; auth_basic_user_file USERS;", refused: true},
	{http: "limit_req_zone $server_name zone=one:1m rate=1000r/s;", server: "limit_req zone=one burst=100 nodelay; limit_req_status 429;"},
	{http: "limit_conn_zone $server_name zone=conns:1m;", server: "limit_conn conns 100; limit_conn_status 429;"},
	{server: "limit_rate 1m; limit_rate_after 1k;"},
	{server: "valid_referers none blocked example.com; if ($invalid_referer) { return 403; }"},
	{server: "secure_link $arg_md5; secure_link_md5 $uri; if ($secure_link = 0) { return 200 open; }"},
	// What leads a request, or the subrequest, elsewhere.
	{server: "rewrite ^(.*)$ /second/a last;", refused: true},
	{server: "if (!-e $request_filename) { rewrite ^(.*)$ /index.php?q=$1 last; }", refused: true},
	{server: "rewrite ^/api/(.*)$ /second/$1;"},
	{server: "rewrite ^/_ampcors$ /login.html;", refused: true},
	{server: "if ($request_uri ~ ^/_ampcors) { return 200; }"},
	{server: "if ($uri = /_ampcors) { return 200; }", refused: true},
	{server: "if ($uri = /_ampcors) { return 204; }", refused: true},
	{server: "set $ampcors_status 200; set $ampcors_answered $request_id;"},
	{server: "rewrite_log on; uninitialized_variable_warn off;"},
	{server: "try_files $uri /login.html;"},
	{server: "index index.php; autoindex on;"},
	{server: "location ~ ^/_ampcors { return 200; }"},
	{server: "location ^~ /_amp { return 200; }"},
	{server: "mirror /open; mirror_request_body on;"},
	{server: "dav_methods PUT DELETE; dav_access all:rw; create_full_put_path on;"},
	{server: "error_page 403 = /login.html; proxy_intercept_errors on;"},
	{server: "error_page 403 =200 /login.html; proxy_intercept_errors on; recursive_error_pages on;"},
	{server: "error_page 403 =200 /open; proxy_intercept_errors on; recursive_error_pages on;"},
	{server: "error_page 401 403 404 418 500 502 503 504 = @open; proxy_intercept_errors on; recursive_error_pages on;"},
	{server: "error_page 418 500 502 = /open; recursive_error_pages on;"},
	{server: "error_page 403 http://login.example/;"},
	// What the subrequest keeps, and what is kept of it.
	{server: "proxy_cache api; proxy_cache_valid any 1h;"},
	{server: "proxy_cache api; proxy_cache_valid any 1h; proxy_cache_key $uri; proxy_ignore_headers Cache-Control Vary Expires Set-Cookie;"},
	{server: "proxy_cache api; proxy_cache_valid any 1h; proxy_cache_methods GET HEAD POST; proxy_ignore_headers Cache-Control Vary;"},
	{server: "proxy_cache api; proxy_cache_valid any 1h; proxy_cache_use_stale error http_500 http_403; proxy_cache_background_update on; " +
		"proxy_cache_lock on;"},
	{server: "proxy_cache api; proxy_cache_valid any 1h; proxy_cache_bypass $http_x; proxy_no_cache $http_x; proxy_cache_min_uses 1; " +
		"proxy_cache_revalidate on;"},
	{server: "proxy_cache_convert_head off; proxy_cache_max_range_offset 1; proxy_force_ranges on;"},
	{server: "proxy_store on; proxy_store_access all:rw; root DIR;"},
	{server: "open_file_cache max=10; open_file_cache_valid 60s;"},
	{server: "slice 1k;"},
	// What is sent to ampcors and to the backend.
	{server: "proxy_pass_request_headers off;"},
	{server: "proxy_pass_request_body off;"},
	{server: "proxy_set_body \"GET / HTTP/1.1\r\nHost: a\r\nX-Original-Method: GET\r\n\r\n\";"},
	{server: "proxy_method POST;"},
	{server: "proxy_method GET;"},
	{server: "proxy_http_version 1.0;"},
	{server: "proxy_set_header Origin \"\";"},
	{server: "proxy_set_header Origin https://www.example.com; proxy_set_header X-Original-Method GET;"},
	{server: "proxy_set_header Ampcors-Publisher $http_ampcors_publisher;"},
	{server: "proxy_request_buffering off; proxy_buffering off;"},
	{server: "proxy_next_upstream error timeout http_403 http_404 http_500 non_idempotent; proxy_next_upstream_tries 3;"},
	{server: "proxy_ignore_client_abort on; proxy_socket_keepalive on; proxy_limit_rate 1m; proxy_bind 127.0.0.1;"},
	{server: "proxy_buffer_size 256; proxy_buffers 4 256; proxy_busy_buffers_size 512; proxy_max_temp_file_size 0;", refused: true},
	{server: "proxy_connect_timeout 5s; proxy_send_timeout 5s; proxy_read_timeout 5s; proxy_send_lowat 0;"},
	{server: "proxy_redirect / /open/; proxy_cookie_domain a b; proxy_cookie_path / /a; proxy_cookie_flags ~ secure;"},
	{http: "underscores_in_headers on;"},
	{http: "ignore_invalid_headers off; underscores_in_headers on;"},
	{server: "merge_slashes off; large_client_header_buffers 4 16k; client_header_buffer_size 8k;"},
	{server: "client_max_body_size 1; client_body_buffer_size 1k; client_body_in_file_only clean;", refused: true},
	{server: "client_body_in_single_buffer on; client_body_timeout 10s;"},
	{server: "error_page 400 413 414 431 494 = /login.html;"},
	{server: "set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For; real_ip_recursive on;"},
	// What is added to an answer, or changed in it.
	{server: "add_header Access-Control-Allow-Origin * always;"},
	{server: "add_header Vary Cookie always; add_header X-Ampcors-Status 200 always;"},
	{server: "add_trailer X-Ampcors-Status 200 always;"},
	{server: "expires 1h;"},
	{server: "expires max; etag off; if_modified_since off; max_ranges 0;"},
	{server: "proxy_hide_header X-Ampcors-Status; proxy_hide_header X-Ampcors-Request; proxy_hide_header Vary;"},
	{server: "proxy_pass_header Access-Control-Allow-Origin; proxy_pass_header Vary; proxy_pass_header X-Accel-Redirect;"},
	{server: "proxy_ignore_headers X-Accel-Redirect X-Accel-Expires X-Accel-Limit-Rate X-Accel-Buffering X-Accel-Charset Vary;"},
	{server: "gzip on; gzip_types *; gzip_min_length 0; gzip_proxied any; gzip_vary on; gzip_http_version 1.0; gzip_comp_level 1;"},
	{server: "gunzip on; gzip_static on;"},
	{server: "ssi on; ssi_types *; ssi_last_modified on; ssi_silent_errors on;"},
	{server: "sub_filter Forbidden OK; sub_filter_types *; sub_filter_once off;"},
	{server: "add_before_body /login.html; addition_types *;"},
	{server: "add_after_body /login.html; addition_types *;"},
	{server: "charset utf-8; override_charset on; charset_types *; source_charset koi8-r;", http: "charset_map koi8-r utf-8 { C0 D18E; }"},
	{server: "userid on; userid_name uid;"},
	{server: "default_type application/json; types { } server_tokens off; msie_padding on; msie_refresh on;"},
	{server: "chunked_transfer_encoding off; keepalive_disable none; absolute_redirect off; port_in_redirect off;"},
	// What observes, or has nothing to do with it.
	{server: "log_subrequest on; log_not_found off; access_log off;"},
	{http: "map_hash_bucket_size 128; variables_hash_bucket_size 128; geo $geo { default 1; } split_clients $remote_addr $split { * a; }"},
	{server: "sendfile on; aio threads; directio 4m; output_buffers 2 32k; postpone_output 0; tcp_nodelay on; reset_timedout_connection on;"},
	{server: "fastcgi_cache off; uwsgi_cache off; scgi_cache off; fastcgi_intercept_errors on; grpc_intercept_errors on; " +
		"memcached_next_upstream error;"},
	{server: "fastcgi_param HTTP_ORIGIN a; uwsgi_param HTTP_ORIGIN a; scgi_param HTTP_ORIGIN a; grpc_set_header Origin a;"},
	{server: "resolver 127.0.0.1; resolver_timeout 1s;"},
	{server: "http2_push_preload on; ssl_session_cache none;"},
}

// TestNginxAsksWhateverStandsAround puts each of the directives around the configuration of package authz in a real nginx. Requests are
// decided as without the directive, or refused.
func TestNginxAsksWhateverStandsAround(t *testing.T) {
	handler, err := authz.New(gatewaytest.NewMiddleware(t), authz.NGINX)
	if err != nil {
		t.Fatal(err)
	}
	asked := serve(t, handler)
	backend := new(surrounded)
	address, open := serve(t, backend), serve(t, http.HandlerFunc(backend.open))
	dir := t.TempDir()
	writeFiles(t, map[string]string{filepath.Join(dir, "users"): "a:{PLAIN}b\n"})
	for i, row := range aroundNginx {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("with %s %s", row.http, row.server)
				}
			}()
			lines := strings.NewReplacer("$OPEN", open, "USERS", filepath.Join(dir, "users"), "DIR", dir).Replace(row.server)
			addr := servertest.FreeAddress(t)
			site, location := authzSite(t, asked, address, addr)
			site = strings.Replace(site, "\n\tlocation /", "\n\t"+lines+`
	location = /login.html { return 200 "please log in"; }
	location = /index.php {`+location+`}
	location /second/ {`+location+`}
	location = /open { proxy_pass http://`+open+`; }
	location @open { proxy_pass http://`+open+`; }
	location /`, 1)
			runNginx(t, addr, row.http+"\n"+site)
			backend.judge(t, addr, row.refused, "Origin", "Cookie", "Ampcors-Publisher")
		})
	}
}

// A surrounded backend is behind a gateway whose configuration has something else too.
type surrounded struct {
	mu   sync.Mutex
	runs []string // what it did: the publishers that it was told, or "open"
}

func (b *surrounded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var publishers []string
	for name, values := range r.Header {
		if strings.EqualFold(strings.NewReplacer("_", "-", ".", "-").Replace(name), gatewaytest.PublisherHeader) {
			publishers = append(publishers, values...)
		}
	}
	b.note(r.Method + " " + strings.Join(publishers, ", "))
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Add("Vary", "Cookie")
	w.Header().Add("Vary", gatewaytest.PublisherHeader)
	w.Header().Set("Cache-Control", "max-age=60")
	fmt.Fprintf(w, "data for %s", publishers)
}

// open is a backend that nobody asks ampcors about.
func (b *surrounded) open(w http.ResponseWriter, _ *http.Request) {
	b.note("open")
	fmt.Fprint(w, "open")
}

func (b *surrounded) note(run string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs = append(b.runs, run)
}

func (b *surrounded) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	runs := b.runs
	b.runs = nil
	return runs
}

// judge sends allowed and forged requests through a gateway. If isRefused, the allowed ones may be refused too. Vary must have the members.
func (b *surrounded) judge(t *testing.T, addr string, isRefused bool, vary ...string) {
	t.Helper()
	const first, second = "www.example.com", "sport.news.example"
	page, other, evil := "https://www-example-com.cdn.ampproject.org", "https://sport-news-example.cdn.ampproject.org",
		"https://www-evil-example.cdn.ampproject.org"
	forged := map[string]string{"Ampcors-Publisher": first, "Ampcors_Publisher": first, "Ampcors.Publisher": first}
	for _, request := range []struct {
		name, method, origin string
		headers              map[string]string
		publisher            string // that the backend must be told; "" if it must not run
	}{
		{"a page's GET", "GET", page, nil, first},
		{"a page's POST", "POST", page, nil, first},
		{"the same URL for another publisher", "GET", other, forged, second},
		{"another publisher's POST", "POST", other, forged, second},
		{"a forged GET", "GET", evil, nil, ""},
		{"a forged POST", "POST", evil, nil, ""},
		{"a forged POST without Origin", "POST", "", map[string]string{"AMP-Same-Origin": "true", "Sec-Fetch-Site": "cross-site"}, ""},
		{"a forged POST that claims to be a GET", "POST", evil, map[string]string{"X-Original-Method": "GET", "X-HTTP-Method-Override": "GET"},
			""},
		{"a page's preflight", "OPTIONS", page, map[string]string{"Access-Control-Request-Method": "POST",
			"Access-Control-Request-Headers": "x-any"}, ""},
		{"a forged preflight", "OPTIONS", evil, map[string]string{"Access-Control-Request-Method": "POST",
			"Access-Control-Request-Headers": "x-any"}, ""},
	} {
		headers := map[string]string{"Origin": request.origin}
		for name, value := range request.headers {
			headers[name] = value
		}
		b.take()
		resp, body := send(t, request.method, "http://"+addr+"/api/a", headers)
		runs, origins := b.take(), resp.Header.Values("Access-Control-Allow-Origin")
		isDone := resp.StatusCode < http.StatusMultipleChoices
		switch isPreflight := request.method == "OPTIONS"; {
		case request.origin == evil || request.origin == "":
			if len(runs) > 0 || len(origins) > 0 || isDone {
				t.Errorf("%s: %s %q, the backend did %q, Access-Control-Allow-Origin: %q", request.name, resp.Status, body, runs, origins)
			}
		case isRefused && len(runs) == 0 && !isDone:
		case isPreflight && len(runs) == 0 && isDone && slices.Equal(origins, []string{request.origin}):
		case !isPreflight && slices.Equal(runs, []string{request.method + " " + request.publisher}) && isDone &&
			slices.Equal(origins, []string{request.origin}):
			for _, member := range vary {
				if !slices.Contains(varyOf(resp.Header), member) {
					t.Errorf("%s: Vary has no %s: %q", request.name, member, resp.Header.Values("Vary"))
				}
			}
		default:
			t.Errorf("%s: %s %q, the backend did %q, Access-Control-Allow-Origin: %q", request.name, resp.Status, body, runs, origins)
		}
		if strings.HasPrefix(body, "Forbidden: ") && !slices.Contains(resp.Header.Values("Cache-Control"), "no-store") {
			t.Errorf("%s: %s with Cache-Control: %q", request.name, resp.Status, resp.Header.Values("Cache-Control"))
		}
	}
}

func varyOf(header http.Header) []string {
	var members []string
	for _, line := range header.Values("Vary") {
		for member := range strings.SplitSeq(line, ",") {
			members = append(members, http.CanonicalHeaderKey(strings.TrimSpace(member)))
		}
	}
	return members
}

// aroundCaddy are directives of Caddy's own modules around ampcors. In route, AMPCORS and PROXY are ampcors and the
// reverse_proxy behind it; without AMPCORS, Caddy sorts the directives. $OPEN is a backend that nobody asks ampcors about.
var aroundCaddy = []struct {
	lines   string
	refused bool   // nobody gets in
	invalid string // what Caddy says of the configuration, if it is not accepted
}{
	{lines: ""},
	// In front of it: what passes each request on.
	{lines: "route {\nheader Strict-Transport-Security max-age=60\nAMPCORS\nPROXY\n}"},
	{lines: "route {\nvars a b\nmap {path} {p} {\ndefault a\n}\nroot /x/* /tmp\nlog_skip /x\nAMPCORS\nPROXY\n}"},
	{lines: "route {\nrewrite /x/* /y\nuri strip_prefix /api\nAMPCORS\nPROXY\n}"},
	{lines: "route {\nencode\nlog_append a b\ntracing {\nspan a\n}\nAMPCORS\nPROXY\n}"},
	{lines: "route {\nrequest_body {\nmax_size 1MB\n}\nAMPCORS\nPROXY\n}"},
	{lines: "route {\nroute {\nAMPCORS\n}\nPROXY\n}"},
	{lines: "handle {\nAMPCORS\nPROXY\n}"},
	// In front of it: what can keep a request.
	{lines: "route {\nrespond /x ok\nAMPCORS\nPROXY\n}", invalid: "static_response is in front of ampcors"},
	{lines: "route {\nrequest_header Host b.example\nAMPCORS\nPROXY\n}", invalid: "headers is in front of ampcors"},
	{lines: "route {\ntry_files {path} =404\nAMPCORS\nPROXY\n}\nhandle_errors {\nreverse_proxy $OPEN\n}",
		invalid: "the matcher file is in front of ampcors"},
	{lines: "@f file {path} =404\nvars @f a b\nhandle_errors {\nreverse_proxy $OPEN\n}", invalid: "the matcher file is in front of ampcors"},
	{lines: "route {\nredir /x /y\nAMPCORS\nPROXY\n}", invalid: "static_response is in front of ampcors"},
	{lines: "route {\nabort /x\nAMPCORS\nPROXY\n}", invalid: "static_response is in front of ampcors"},
	{lines: "route {\nerror /x 404\nAMPCORS\nPROXY\n}\nhandle_errors {\nreverse_proxy $OPEN\n}", invalid: "error is in front of ampcors"},
	{lines: "route {\nreverse_proxy /x $OPEN\nAMPCORS\nPROXY\n}", invalid: "reverse_proxy is in front of ampcors"},
	{lines: "route {\nforward_auth $OPEN {\nuri /\n}\nAMPCORS\nPROXY\n}", invalid: "reverse_proxy is in front of ampcors"},
	{lines: "route {\nphp_fastcgi $OPEN\nAMPCORS\nPROXY\n}", invalid: "is in front of ampcors"},
	{lines: "route {\nbasic_auth {\na PASSWORD\n}\nAMPCORS\nPROXY\n}", invalid: "authentication is in front of ampcors"},
	{lines: "route {\nfile_server {\npass_thru\n}\nAMPCORS\nPROXY\n}", invalid: "file_server is in front of ampcors"},
	{lines: "route {\nfile_server\nAMPCORS\nPROXY\n}", invalid: "file_server is in front of ampcors"},
	{lines: "route {\ntemplates\nAMPCORS\nPROXY\n}", invalid: "templates is in front of ampcors"},
	{lines: "route {\npush /x\nAMPCORS\nPROXY\n}", invalid: "push is in front of ampcors"},
	{lines: "route {\nmetrics /x\nAMPCORS\nPROXY\n}", invalid: "metrics is in front of ampcors"},
	{lines: "route {\nacme_server\nAMPCORS\nPROXY\n}", invalid: "acme_server is in front of ampcors"},
	{lines: "route {\nintercept {\nhandle_response {\nreverse_proxy $OPEN\n}\n}\nAMPCORS\nPROXY\n}",
		invalid: "intercept is in front of ampcors"},
	{lines: "route {\nhandle /x {\nrespond ok\n}\nAMPCORS\nPROXY\n}", invalid: "static_response is in front of ampcors"},
	{lines: "handle_path /api/* {\nAMPCORS\nPROXY\n}", invalid: "ampcors is behind a matcher (path)"},
	{lines: "handle_errors {\nAMPCORS\nPROXY\n}\nPROXY", invalid: "ampcors is in handle_errors"},
	{lines: "reverse_proxy $OPEN {\nhandle_response {\nAMPCORS\nPROXY\n}\n}", invalid: "ampcors is in a part of reverse_proxy"},
	// Behind it. A denial is an answer, whatever errors lead to.
	{lines: "handle_errors {\nreverse_proxy $OPEN\n}"},
	{lines: "handle_errors 403 404 502 503 504 {\nreverse_proxy $OPEN\n}"},
	{lines: "handle_errors {\nrewrite * /error\nreverse_proxy $OPEN\n}\nerror /x 500"},
	{lines: "header Access-Control-Allow-Origin *"},
	{lines: "header >Access-Control-Allow-Origin *"},
	{lines: "header -Vary\nheader Cache-Control max-age=60"},
	{lines: "header {\n-Access-Control-Allow-Origin\n+Vary Cookie\ndefer\n}"},
	{lines: "request_header -Origin"},
	{lines: "rewrite * /b"},
	{lines: "uri strip_prefix /api"},
	{lines: "uri replace /a /b"},
	{lines: "try_files {path} /b"},
	{lines: "encode\ntemplates\nlog_append a b\nlog_skip\ntracing {\nspan a\n}"},
	{lines: "request_body {\nmax_size 1MB\n}\nvars a b\nroot /tmp"},
	{lines: "respond /x ok\nredir /y /z\nabort /w\nerror /v 404"},
	{lines: "redir https://login.example{uri}", refused: true},
	{lines: "basic_auth {\na PASSWORD\n}", refused: true},
	{lines: "forward_auth $OK {\nuri /\n}"},
	{lines: "forward_auth $DENIES {\nuri /\n}", refused: true},
	{lines: "intercept {\n@error status 403 5xx\nhandle_response @error {\nreverse_proxy $OPEN\n}\n}"},
	{lines: "handle /x/* {\nfile_server\n}\nhandle {\nPROXY\n}"},
	{lines: "handle_path /api/* {\nPROXY\n}"},
	{lines: "invoke proxied"},
	{lines: "reverse_proxy BACKEND {\nheader_down Access-Control-Allow-Origin *\nheader_down -Vary\n}"},
	{lines: "reverse_proxy BACKEND {\n@error status 403 5xx\nhandle_response @error {\nreverse_proxy $OPEN\n}\n}"},
	{lines: "reverse_proxy BACKEND $OPEN {\nlb_policy first\nlb_retries 2\n}"},
	{lines: "metrics /x\nacme_server /y\nfile_server /z\npush /w"},
}

// caddyMatchers are the matchers of Caddy. Each is around ampcors, around a reverse_proxy in front of it, and around one behind it.
var caddyMatchers = map[string]string{
	"client_ip": "client_ip 127.0.0.1", "expression": "expression true", "file": "file /etc/passwd", "header": "header Origin *",
	"header_regexp": "header_regexp Origin .", "method": "method GET POST OPTIONS", "not": "not path /x", "path": "path /api/*",
	"path_regexp": "path_regexp ^/api", "protocol": "protocol http", "query": `query ""`, "remote_ip": "remote_ip 127.0.0.1",
	"vars": "vars {path} /api/a", "vars_regexp": "vars_regexp {path} .",
}

// TestCaddyDecidesWhateverStandsAround puts each of the directives around ampcors in a real Caddy. Requests are decided as
// without the directive, or refused, or Caddy does not accept the configuration.
func TestCaddyDecidesWhateverStandsAround(t *testing.T) {
	backend := new(surrounded)
	address, open := serve(t, backend), serve(t, http.HandlerFunc(backend.open))
	status := func(code int) string {
		return serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
	}
	addr, admin := servertest.FreeAddress(t), servertest.FreeAddress(t)
	fill := strings.NewReplacer(
		"AMPCORS", "ampcors www.example.com *.news.example {\npublisher_header Ampcors-Publisher\nrequest_headers X-Any\ncredentialed\n}",
		"PROXY", "reverse_proxy "+address, "BACKEND", address, "$OPEN", open, "$OK", status(http.StatusOK), "$DENIES",
		status(http.StatusUnauthorized),
		"PASSWORD", "$2a$14$7Yl2hh9sv4Uj5n0UVGRuWuZb0kbhNtgr4EX6n7bkKQp7m0vm2M5.m")
	site := func(lines string) string {
		if !strings.Contains(lines, "AMPCORS") {
			lines = "AMPCORS\n" + lines
		}
		if !strings.Contains(lines, "PROXY") && !strings.Contains(lines, "invoke") {
			lines += "\nPROXY"
		}
		return fill.Replace("{\nadmin " + admin + "\n}\n&(proxied) {\nPROXY\n}\nhttp://" + addr + " {\n" + lines + "\n}\n")
	}
	file := filepath.Join(t.TempDir(), "Caddyfile")
	writeFiles(t, map[string]string{file: site("")})
	start(t, addr, gatewayCaddy(t)("run", "--config", file))
	rows := aroundCaddy
	for name, matcher := range caddyMatchers {
		for _, lines := range []string{"handle @m {\nAMPCORS\nPROXY\n}", "route {\nreverse_proxy @m $OPEN\nAMPCORS\nPROXY\n}",
			"route {\nAMPCORS\nhandle @m {\nPROXY\n}\nPROXY\n}"} {
			row := rows[0]
			row.lines = "@m " + matcher + "\n" + lines
			if strings.HasPrefix(lines, "handle") {
				row.invalid = "ampcors is behind a matcher (" + name + ")"
			} else if strings.Contains(lines, "$OPEN") {
				row.invalid = " is in front of ampcors"
			}
			rows = append(rows, row)
		}
	}
	for i, row := range rows {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("with %s", row.lines)
				}
			}()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+admin+"/load", strings.NewReader(site(row.lines)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "text/caddyfile")
			req.Close = true // the API is another server after it
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			servertest.OneListener(t, admin) // replaced also where the configuration is refused
			servertest.OneListener(t, addr)
			if row.invalid != "" {
				if resp.StatusCode == http.StatusOK || !strings.Contains(string(body), row.invalid) {
					t.Errorf("%s %s", resp.Status, body)
				}
				return
			}
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s %s", resp.Status, body)
			}
			vary := []string{"Origin", "Cookie", "Ampcors-Publisher"}
			if strings.Contains(row.lines, "-Vary") { // the backend's, as the site wants it
				vary = vary[:1]
			}
			backend.judge(t, addr, row.refused, vary...)
		})
	}
}

package main

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/internal/readme"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/probe"
)

// run runs the command with a standard input.
func run(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs servertest.Buffer // a server's goroutines may write when the command has ended
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&errs)
	code = execute(t.Context(), root)
	noteFlags(root)
	return code, out.String(), errs.String()
}

func TestConversions(t *testing.T) {
	onOtherCaches := ""
	for _, c := range cacheurl.DefaultCaches()[2:] {
		onOtherCaches += "https://a-example." + c.CacheDomain + "\nhttps://xdtukm3ruasnvlqg6mlejewav7g6cnghor6bkwz5qpba3y2b5bkq." +
			c.CacheDomain + "\n"
	}
	other, none := otherCaches(t), writeFile(t, filepath.Join(t.TempDir(), "none.json"), `{"caches": []}`)
	emails := writeFile(t, filepath.Join(t.TempDir(), "emails.json"), `{"email": {"senders": ["news@example.com"]}}`)
	for _, test := range []struct {
		name  string
		args  []string
		stdin string
		code  int
		want  string // stdout
		err   string // in stderr
	}{
		{name: "prefix", args: []string{"prefix", "www.example.com", "bücher.example"}, want: "www-example-com\nxn--bcher-example-wob\n"},
		{name: "the capital ẞ", args: []string{"prefix", "STRAẞE.de", "straße.de", "GROẞ.DE"},
			want: "xn--strae-de-tya\nxn--strae-de-tya\nxn--gro-de-dta\n"},
		{name: "advice about the capital ẞ", args: []string{"prefix", "STRAẞE.ﬁn"}, code: exitFindings, err: `straße.fin`},
		{name: "a sized image", args: []string{"cacheurl", "--type", "ii", "https://www.example.com/logo.png"},
			want: "https://www-example-com.cdn.ampproject.org/ii/s/www.example.com/logo.png\n"},
		{name: "an image as a document", args: []string{"cacheurl", "--type", "c", "https://www.example.com/logo.png"},
			want: "https://www-example-com.cdn.ampproject.org/c/s/www.example.com/logo.png\n",
			err:  "warning: https://www.example.com/logo.png is an image or a font by its extension"},
		{name: "prefix of lines", args: []string{"prefix"}, stdin: "a.example\n\n b.example \n", want: "a-example\nb-example\n"},
		{name: "hash prefix", args: []string{"prefix", "--hash", "www.example.com"},
			want: "qd6a7ojgnw33qp4fquh2bzsurnwxb3tizc23iexr33vg5pppaqca\n"},
		{name: "all prefixes", args: []string{"prefix", "--all", "faß.de"},
			want: fmt.Sprintf("%-63s  ampcors, toolbox-cache-url, snowflake, the AMP document\n%-63s  amppackager; denied, because another host "+
				"has it too\n%-63s  nobody today, but caches have used it\n", "xn--fa-de-mqa", "fass-de",
				"hr7lkydfj2a3j3xjh5qfs5sicrjlowpcmuj46imgsymx3wcysi4q")},
		{name: "an invalid domain among others", args: []string{"prefix", "a.example", "localhost", "b.example"}, code: exitFindings,
			want: "a-example\nb-example\n", err: `"localhost" has no dot`},
		{name: "JSON", args: []string{"prefix", "-o", "json", "a.example", "localhost"}, code: exitFindings,
			want: `[
  {
    "input": "a.example",
    "output": "a-example"
  },
  {
    "input": "localhost",
    "error": "ampcors: publisher \"localhost\" has no dot; want a domain such as \"www.example.com\""
  }
]
`},
		{name: "nothing", args: []string{"prefix"}, code: exitUsage, err: "nothing on standard input"},
		{name: "origins", args: []string{"origins", "a.example"},
			want: "https://a.example\nhttps://a-example.cdn.ampproject.org\n" +
				"https://xdtukm3ruasnvlqg6mlejewav7g6cnghor6bkwz5qpba3y2b5bkq.cdn.ampproject.org\nhttps://a-example.www.bing-amp.com\n" +
				"https://xdtukm3ruasnvlqg6mlejewav7g6cnghor6bkwz5qpba3y2b5bkq.www.bing-amp.com\n" + onOtherCaches},
		{name: "origins of all forms", args: []string{"origins", "--caches", other, "é-x.com"},
			want: "https://xn---x-9ia.com\nhttps://xn----x-com-9xa.cache.example\nhttps://xn--0---x-com-0-cbb.cache.example\n" +
				"https://6vyz5odpwzi24rhvlctdle6yqvr66pgdogi67dpqegncwquf5ava.cache.example\n"},
		{name: "origins without another publisher's", args: []string{"origins", "--caches", other, "faß.de"},
			want: "https://xn--fa-hia.de\nhttps://xn--fa-de-mqa.cache.example\n" +
				"https://hr7lkydfj2a3j3xjh5qfs5sicrjlowpcmuj46imgsymx3wcysi4q.cache.example\n"},
		{name: "caches that are not there", args: []string{"origins", "--caches", "nowhere.json", "a.example"}, code: exitUsage,
			err: "nowhere.json"},
		{name: "no caches in a file", args: []string{"origins", "--caches", none, "a.example"}, code: exitUsage,
			err: `names no cache; want at least one. To trust no AMP Cache, use "caches": [] in a configuration, or --no-caches of ampcors probe ` +
				`and ampcors advice`},
		{name: "reverse null", args: []string{"reverse", "null"}, code: exitFindings, err: `"null" names nobody`},
		{name: "reverse on another cache", args: []string{"reverse", "--caches", other, "https://www-example-com.cache.example"},
			want: "www.example.com\n"},
		{name: "reverse", args: []string{"reverse", "https://www-example-com.cdn.ampproject.org", "great--town-example"},
			want: "www.example.com\ngreat-town.example\n"},
		{name: "reverse a hash prefix", args: []string{"reverse", "qd6a7ojgnw33qp4fquh2bzsurnwxb3tizc23iexr33vg5pppaqca"}, code: exitFindings,
			err: "hash prefix"},
		{name: "cacheurl", args: []string{"cacheurl", "https://www.example.com/article?id=7"},
			want: "https://www-example-com.cdn.ampproject.org/c/s/www.example.com/article?id=7\n"},
		{name: "cacheurl with a query for the cache", args: []string{"cacheurl", "--cache-query", "amp_js_v=0.1", "https://www.example.com/a?b"},
			want: "https://www-example-com.cdn.ampproject.org/c/s/www.example.com/a?b&amp_js_v=0.1\n"},
		{name: "cacheurl of Bing", args: []string{"cacheurl", "--cache", "bing", "--type", "i", "https://www.example.com/a.jpg"},
			want: "https://www-example-com.www.bing-amp.com/i/s/www.example.com/a.jpg\n"},
		{name: "cacheurl of a cache in a file", args: []string{"cacheurl", "--caches", other, "https://www.example.com/a"},
			want: "https://www-example-com.cache.example/c/s/www.example.com/a\n"},
		{name: "cacheurl with another prefix", args: []string{"cacheurl", "--prefix", "0-in----trouble-com-0", "https://in--trouble.com/"},
			want: "https://0-in----trouble-com-0.cdn.ampproject.org/c/s/in--trouble.com/\n"},
		{name: "cacheurl with the prefix of another publisher",
			args: []string{"cacheurl", "--prefix", "www-example-org", "https://www.example.com/"}, code: exitFindings, err: "is not a prefix of"},
		{name: "cacheurl of a type that is none", args: []string{"cacheurl", "https://www-example-com.cdn.ampproject.org/x/s/www.example.com/"},
			code: exitFindings, err: "has the content type \"x\""},
		{name: "cacheurl of a prefix that two hosts share", args: []string{"cacheurl", "https://fass-de.cdn.ampproject.org/c/s/xn--fa-hia.de/"},
			code: exitFindings, err: "shares with another host"},
		{name: "cacheurl of what is pasted", args: []string{"cacheurl", "https://www.google.com/amp/s/www.example.com/article",
			"https://www.google.co.uk/amp/www.example.com/a?usqp=1&b=2",
			"https://www.bing.com/amp/s/www.example.com/article", "https://cdn.ampproject.org/c/s/www.example.com/a",
			"https://amp-dev.cdn.ampproject.org/amp.dev/documentation/",
			"https://amp-dev.cdn.ampproject.org/s/amp.dev/documentation/",
			"https://amp-dev.cdn.ampproject.org/amp.dev/documentation/examples/api/redirect?url=https://amp.dev/x",
			"https://www.google.com/amp/s/www.paper.example/nation/x/%3foutputType=amp",
			"https://google.de/amp/s/www.paper.example/x%3Famp=1?usqp=2", "https://www-example-com.bing-amp.com/c/s/www.example.com/a",
			"https://www.google.com/url?q=https://www.google.co.uk/amp/s/www.example.com/b&sa=D",
			"https://www.google.com/url?url=https%3A%2F%2Fwww.example.com%2Fc%3Fd",
			"https://www.google.com/url?q=https://www-example-com.cdn.ampproject.org/v/s/www.example.com/e"},
			want: "https://www.example.com/article\nhttp://www.example.com/a?b=2\nhttps://www.example.com/article\nhttps://www.example.com/a\n" +
				"https://amp.dev/documentation/\nhttps://amp.dev/documentation/\n" +
				"https://amp.dev/documentation/examples/api/redirect?url=https://amp.dev/x\n" +
				"https://www.paper.example/nation/x/?outputType=amp\nhttps://www.paper.example/x?amp=1\nhttps://www.example.com/a\n" +
				"https://www.example.com/b\nhttps://www.example.com/c?d\nhttps://www.example.com/e\n" +
				"", err: "the URL of a viewer, which shows this page"},
		{name: "cacheurl of another host's page without a type",
			args: []string{"cacheurl", "https://www-example-com.cdn.ampproject.org/s/evil.example/"}, code: exitFindings,
			err: "is not one of the prefixes of"},
		{name: "cacheurl of a viewer without a page", args: []string{"cacheurl", "https://www.google.com/amp/s/localhost/"}, code: exitFindings,
			err: "is the URL of a viewer, which shows this page, but its host cannot be read"},
		{name: "reverse an origin with a slash", args: []string{"reverse", "https://www-example-com.cdn.ampproject.org/"}, code: exitFindings,
			err: `has a slash at its end, which no Origin has; want "https://www-example-com.cdn.ampproject.org"`},
		{name: "reverse a URL", args: []string{"reverse", "https://www-example-com.cdn.ampproject.org/c/s/www.example.com/a"}, code: exitFindings,
			err: "ampcors cacheurl prints the publisher's URL"},
		{name: "reverse on an unknown cache", args: []string{"reverse", "https://www-example-com.amp.example"}, code: exitFindings,
			err: "not an origin of a known cache"},
		{name: "cacheurl of an unknown type", args: []string{"cacheurl", "--type", "ad", "https://www.example.com/"}, code: exitUsage,
			err: "want c, v, wp, cert, i, ii or r"},
		{name: "cacheurl back", args: []string{"cacheurl", "https://www-example-com.cdn.ampproject.org/c/s/www.example.com/article?id=7"},
			want: "https://www.example.com/article?id=7\n"},
		{name: "cacheurl of another cache", args: []string{"cacheurl", "--cache", "cloudflare", "https://www.example.com/"}, code: exitUsage,
			err: "want google or bing"},
		{name: "explain", args: []string{"explain", "--publisher", "www.example.com", "null"}, code: exitFindings,
			want: "FAIL  scheme     null\n                  Sandboxed frames and local files send \"null\"; anybody can.\nFAIL  verdict    " +
				"Denied\n                  Reason: null_origin.\n"},
		{name: "explain a sender", args: []string{"explain", "--config", emails, "--sender", "news@example.com"},
			want: "ok    version 2  AMP-Email-Sender: news@example.com\n                  Version 2 of AMP for Email: the sender is in " +
				"email.senders. Origin does not count. Reason: email.\nok    version 1  Origin: https://mail.google.com\n                  Version 1 " +
				"of AMP for Email: the sender is in email.senders, and the Origin in email.clients. Reason: email_v1.\n"},
		{name: "explain a sender at another client", args: []string{"explain", "--config", emails, "--sender", "news@example.com",
			"https://mail.example", "https://mail.google.com"}, code: exitFindings, want: "ok    version 2  AMP-Email-Sender: news@example.com\n  " +
			"                Version 2 of AMP for Email: the sender is in email.senders. Origin does not count. Reason: email.\n" +
			"FAIL  version 1  Origin: https://mail.example\n                  This origin is not in email.clients, so that the sender does not " +
			"count. Reason: unknown_host.\nok    version 1  Origin: https://mail.google.com\n                  Version 1 of AMP for Email: the " +
			"sender is in email.senders, and the Origin in email.clients. Reason: email_v1.\n"},
		{name: "explain senders", args: []string{"explain", "--config", emails, "--sender", "evil@example.com,no address"}, code: exitFindings,
			want: "evil@example.com\nFAIL  version 2  AMP-Email-Sender: evil@example.com\n                  The sender is not in email.senders. " +
				"Reason: email_sender_not_allowed.\nFAIL  version 1  Origin: https://mail.google.com\n                  The sender is not in " +
				"email.senders. Reason: email_sender_not_allowed.\n\n" +
				"no address\nFAIL  version 2  AMP-Email-Sender: no address\n                  An AMP for Email request names one sender, by its " +
				"address. Reason: no_email_sender.\nFAIL  version 1  Origin: https://mail.google.com\n                  The origin of a mail client. " +
				"AMP for Email requests name their sender, and pages at this origin are not allowed. Reason: no_email_sender.\n\n"},
		{name: "explain a sender in another case", args: []string{"explain", "--config", emails, "--sender", "News@example.com"},
			code: exitFindings, want: "FAIL  version 2  AMP-Email-Sender: News@example.com\n                  The sender is not in email.senders. " +
				"It has news@example.com: before the @, upper and lower case differ (RFC 5321 section 2.4). Reason: email_sender_not_allowed.\n" +
				"FAIL  version 1  Origin: https://mail.google.com\n                  The sender is not in email.senders. It has news@example.com: " +
				"before the @, upper and lower case differ (RFC 5321 section 2.4). Reason: email_sender_not_allowed.\n"},
		{name: "explain a sender without a file", args: []string{"explain", "--sender", "news@example.com"}, code: exitUsage,
			err: "--sender needs --config, with a file that has email.senders"},
		{name: "advice for a sender", args: []string{"advice", "nginx", "--sender", "news@example.com"}, code: exitUsage,
			err: `Put ampcors serve-proxy in front of the backend, with the configuration {"email": {"senders": ["news@example.com"]}}, and test ` +
				`it with ampcors probe --sender`},
		{name: "explain a sender without emails", args: []string{"explain", "--publisher", "www.example.com", "--sender", "news@example.com"},
			code: exitFindings, want: "FAIL  version 2  AMP-Email-Sender: news@example.com\n                  email.senders is empty, so that no " +
				"email gets the header that it needs. Reason: no_origin.\nFAIL  version 1  Origin: https://mail.google.com\n                  " +
				"email.senders is empty, so that no email gets the header that it needs. Reason: unknown_host.\n"},
		{name: "explain without a publisher", args: []string{"explain", "null"}, code: exitUsage, err: "--publisher"},
		{name: "an unknown output", args: []string{"prefix", "-o", "yaml", "a.example"}, code: exitUsage, err: "want text or json"},
		{name: "an unknown flag", args: []string{"prefix", "--hsah"}, code: exitUsage,
			err: "ampcors prefix has no flag --hsah; did you mean --hash?"},
		{name: "a flag without a value", args: []string{"explain", "--config"}, code: exitUsage, err: "--config needs a value"},
		{name: "a value of another type", args: []string{"probe", "--rate", "fast"}, code: exitUsage,
			err: `--rate "fast" is wrong; want a number`},
		{name: "an unknown command of a command", args: []string{"source", "instal"}, code: exitUsage,
			err: `there is no command "instal"; did you mean install?`},
		{name: "no argument", args: []string{"check"}, code: exitUsage, err: "ampcors check takes a configuration file, and got 0 arguments"},
		{name: "no file", args: []string{"check", "nowhere.json"}, code: exitUsage, err: "nowhere.json"},
		{name: "an argument of a command that takes none", args: []string{"version", "1"}, code: exitUsage,
			err: `takes no argument, and got "1"`},
		{name: "a misspelled command with a flag", args: []string{"explian", "--config", "x"}, code: exitUsage,
			err: `there is no command "explian"; did you mean explain?`},
		{name: "a shell without completion", args: []string{"completion", "bsh"}, code: exitUsage,
			err: `there is no command "bsh"; did you mean bash`},
		{name: "a server without a URL", args: []string{"health", "foo"}, code: exitUsage, err: "want one such as http://127.0.0.1:9000/"},
		{name: "explain several", args: []string{"explain", "--publisher", "www.example.com", "null", "x"}, code: exitFindings,
			want: "null\nFAIL  scheme     null\n                  Sandboxed frames and local files send \"null\"; anybody can.\nFAIL  verdict    " +
				"Denied\n                  Reason: null_origin.\n\n" +
				"x\nFAIL  scheme     \n                  An origin is a scheme in lower case, \"://\" and a host, of 267 bytes at most.\nFAIL  " +
				"verdict    Denied\n                  Reason: malformed_origin.\n\n"},
		{name: "a flag that is missing", args: []string{"flush", "https://www.example.com/"}, code: exitUsage, err: "ampcors flush needs --key"},
		{name: "an unknown command", args: []string{"prefxi"}, code: exitUsage, err: `there is no command "prefxi"; did you mean prefix?`},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := run(t, test.stdin, test.args...)
			if code != test.code || stdout != test.want || !strings.Contains(stderr, test.err) || (stderr == "") != (test.err == "") {
				t.Errorf("exit code %d; want %d\nstdout:\n%s\nwant:\n%s\nstderr: %s", code, test.code, stdout, test.want, stderr)
			}
		})
	}
}

// A list is checked and explained as a configuration is, and a Caddyfile is named.
func TestAListOfPublishersIsAConfiguration(t *testing.T) {
	write := func(name, text string) string { return writeFile(t, filepath.Join(t.TempDir(), name), text) }
	list, caches := write("pub.txt", "# ours\nwww.example.com\n*.example.org\n"), otherCaches(t)
	idn := write("idn.txt", "*.bücher.example\n*.in--trouble.com\nin--trouble.com\n")
	wrong := write("config.json", `{"publishers": ["www.example.com", "https://b.example/"], "origins": ["*"]}`)
	cut := write("cut.txt", "www.example.com\nwww.exam")
	hash, err := cacheurl.HashPrefix("www.bücher.example")
	if err != nil {
		t.Fatal(err)
	}
	other, err := cacheurl.HashPrefix("in--trouble.com")
	if err != nil {
		t.Fatal(err)
	}
	const allowed = "https://www-example-com.cdn.ampproject.org"
	for _, test := range []struct {
		args  []string
		stdin string
		code  int
		want  string
	}{
		{[]string{"check", list}, "", exitClean, "publishers: 1, and 1 pattern\n"},
		{[]string{"check", "--caches", caches, list}, "", exitClean, "caches: other (as " + caches + " says)"},
		{[]string{"check", write("bad.txt", "www.example.com\nhttps://b.example\n")}, "", exitFindings,
			"bad.txt:2:1: \"https://b.example\" has a scheme"},
		{[]string{"check", cut}, "", exitFindings, "the file may be truncated"},
		{[]string{"check", write("Caddyfile", "localhost\nampcors {\n}\n")}, "", exitUsage, "Caddyfile is a Caddyfile; caddy adapt --config "},
		{[]string{"check", write("site.caddy", "{\n\torder ampcors first\n}\n")}, "", exitUsage, "site.caddy is a Caddyfile"},
		{[]string{"check", write("text.json", "www.example.com\n")}, "", exitFindings, "is not JSON"},
		{[]string{"check", idn}, "", exitClean, `warning: "*.in--trouble.com": AMP Caches use a hash prefix for names below it`},
		{[]string{"explain", "--config", list, allowed}, "", exitClean, "Reason: cache_origin."},
		{[]string{"explain", "--config", idn, "https://" + hash + ".cdn.ampproject.org"}, "", exitFindings,
			"This is the hash prefix of www.bücher.example. \"*.bücher.example\" does not match a hash: list www.bücher.example by itself."},
		{[]string{"explain", "--config", list, "https://a.cdn.ampproject.org, https://a.cdn.ampproject.org"}, "", exitFindings,
			"look for a proxy that doubles the header"},
		{[]string{"explain", "--config", list, "https://www-example-com.bing-amp.com"}, "", exitFindings, "are below www.bing-amp.com"},
		{[]string{"explain", "--config", list, "https://" + hash + ".cdn.ampproject.org"}, "", exitFindings,
			"ampcors reverse --among FILE says which"},
		{[]string{"explain", "--config", wrong, allowed}, "", exitFindings, "Reason: cache_origin."},
		{[]string{"explain", "--config", wrong, allowed}, "", exitFindings, "a server keeps its last good configuration"},
		{[]string{"explain", "--config", cut, allowed}, "", exitFindings, "Reason: cache_origin."},
		{[]string{"reverse", "--among", idn, other, "https://" + other + ".cdn.ampproject.org"}, "", exitClean,
			"in--trouble.com\nin--trouble.com\n"},
		{[]string{"reverse", "--among", "-", hash}, "www.bücher.example # ours\n", exitClean, "www.bücher.example\n"},
		{[]string{"reverse", "--config", idn, other}, "", exitClean, "in--trouble.com\n"},
		{[]string{"reverse", "--config", list, hash}, "", exitFindings, "is the hash prefix of none of the 2 domains in " + list},
		{[]string{"reverse", hash}, "", exitFindings, "--among FILE or --config FILE tries it"},
		{[]string{"reverse", "--among", "-"}, hash, exitUsage, "so the prefixes must be arguments"},
		{[]string{"reverse", "--among", "nowhere.txt", hash}, "", exitUsage, "nowhere.txt"},
		{[]string{"reverse", "http://www-example-com.cdn.ampproject.org"}, "", exitFindings,
			`has the scheme http, and pages on an AMP Cache have https; want "https://www-example-com.cdn.ampproject.org"`},
	} {
		code, stdout, stderr := run(t, test.stdin, test.args...)
		if code != test.code || !strings.Contains(stdout+stderr, test.want) {
			t.Errorf("%q: exit code %d; want %d, %s\n%s%s", test.args, code, test.code, test.want, stdout, stderr)
		}
	}
}

// --caches names the caches that are trusted, where the file names none.
func TestTheCachesOfTheFlagAreTrusted(t *testing.T) {
	otherIDs := ""
	for _, c := range cacheurl.DefaultCaches()[2:] {
		otherIDs += ", " + c.ID
	}
	caches, file := otherCaches(t), filepath.Join(t.TempDir(), "config.json")
	for _, test := range []struct {
		config, args string
		code         int
		want         string
	}{
		{"", "explain --publisher www.example.com --caches " + caches + " https://www-example-com.cache.example", exitClean,
			"Reason: cache_origin."},
		{"", "explain --publisher www.example.com --caches " + caches + " https://www-example-com.cdn.ampproject.org", exitFindings,
			"Reason: unknown_host."},
		{`{"publishers": ["www.example.com"]}`, "check --caches " + caches + " " + file, exitClean, "caches: other (as " + caches + " says)"},
		{`{"publishers": ["www.example.com"]}`, "check " + file, exitClean, "caches: google, bing" + otherIDs + " (built in)"},
		{`{"publishers": ["www.example.com"], "caches": []}`, "check " + file, exitClean, "caches: none (as the file says)"},
		{`{"publishers": ["www.example.com"], "caches": []}`, "check --caches " + caches + " " + file, exitFindings,
			":1:47: caches is set, and the program was started with the caches of " + caches + "; want one of them"},
		{`{"publishers": ["www.example.com"], "cachesFile": "` + caches + `"}`, "explain --config " + file + " --caches " + caches + " null",
			exitUsage, "cachesFile is set, and the program was started with the caches of"},
		{`{"publishers": ["www.example.com"], "caches": []}`, "serve-authz --proxy nginx --listen 127.0.0.1:0 --config " + file + " --caches " +
			caches, exitUsage, "caches is set, and the program was started with the caches of"},
		{`{"publishers": ["www.example.com"]}`, "serve-authz --proxy nginx --listen 127.0.0.1:0 --config " + file + " --caches " + file,
			exitUsage, "caches"},
		{`{"publishers": ["www.example.com"]}`, "serve-proxy --to http://127.0.0.1:1 --listen 127.0.0.1:0 --config " + file + " --caches " + file,
			exitUsage, "caches"},
	} {
		writeFile(t, file, test.config)
		code, stdout, stderr := run(t, "", strings.Fields(test.args)...)
		if code != test.code || !strings.Contains(stdout+stderr, test.want) {
			t.Errorf("%s\n%s: exit code %d; want %d\n%s%s", test.config, test.args, code, test.code, stdout, stderr)
		}
	}
}

// What people paste in place of an origin is said to them.
func TestExplainSaysWhatIsNoOrigin(t *testing.T) {
	for origin, want := range map[string]string{
		"https://www.example.com/": `"https://www.example.com/" has a slash at its end, which no Origin has; want ` +
			`"https://www.example.com"`,
		"https://www.example.com/a":       "is a URL, and not an origin; ampcors cacheurl prints the publisher's URL",
		"www.example.com":                 `An origin begins with its scheme; want "https://www.example.com".`,
		"Origin: https://www.example.com": `has the name of the header; want "https://www.example.com"`,
		"https://www.example.com":         "",
		"https://evil.example":            "",
		"null":                            "",
		"https://www.example.com:8443":    "",
	} {
		_, stdout, _ := run(t, "", "explain", "--publisher", "www.example.com", origin)
		if _, hint, _ := strings.Cut(stdout, "FAIL  hint       "); want != "" && !strings.Contains(hint, want) || want == "" && hint != "" {
			t.Errorf("%s: %q; want %q\n%s", origin, hint, want, stdout)
		}
	}
}

// A flag that would have no effect is an error, which names the flag that it needs, or that it excludes.
func TestNoFlagIsIgnored(t *testing.T) {
	t.Setenv(databaseEnv, "")
	file := writeFile(t, filepath.Join(t.TempDir(), "config.json"), `{"publishers": ["www.example.com"], "source": {"ttl": "1m"}}`)
	const noDatabase = "source says how a database is asked, and no database is named"
	for line, want := range map[string]string{
		"prefix --all --hash a.example":                               "--all and --hash exclude each other",
		"submit --state s.json":                                       "--state needs --sitemap",
		"flush --key k --max-state 1":                                 "--max-state needs --sitemap",
		"submit --all --sitemap s.xml":                                "--all needs --state",
		"flush --key k --gone --sitemap s.xml":                        "--gone needs --state",
		"submit --max-gone 1 --sitemap s.xml --state s.json":          "--max-gone needs --gone",
		"flush --key k --dry-run --sign https://a.example/":           "--dry-run and --sign exclude each other",
		"verify --copies a.example":                                   "--copies needs --key",
		"verify --key k --caches c.json a.example":                    "--caches needs --copies",
		"verify --key k --keys k.json a.example":                      "--key and --keys exclude each other",
		"verify --key k --key-location https://a.example/b a.example": "--key and --key-location exclude each other",
		"check --schema --with-database":                              "--schema and --with-database exclude each other",
		"check --schema -o json":                                      "--schema and --output exclude each other",
		"check --schema --table sites":                                "--schema and --table exclude each other",
		"check --with-database --database postgres://a c.json":        "--with-database and --database exclude each other",
		"check --table sites c.json":                                  "--table is set, and no database is named",
		"explain --condition active https://a.example":                "--condition is set, and no database is named",
		"serve-authz --proxy nginx --config c.json --domain-column a": "--domain-column is set, and no database is named",
		"serve-authz --proxy nginx --config c.json --prefix-column a": "--prefix-column is set, and no database is named",
		"serve-proxy --config c.json --to http://a --condition a":     "--condition is set, and no database is named",
		"source install --replace --database mysql://a":               "--replace is about triggers",
		"source fill --prefix-column a":                               "no database is named",
		"probe --method POST https://a.example/":                      "--method needs --endpoint or --list",
		"probe --content-type text/plain https://a.example/":          "--content-type needs --endpoint or --list",
		"probe --body x https://a.example/":                           "--body needs --endpoint or --list",
		"probe --credentials https://a.example/":                      "--credentials needs --endpoint or --list",
		"probe --plan --advice nginx https://a.example/":              "--plan and --advice exclude each other",
		"probe --plan --baseline b.json https://a.example/":           "--plan and --baseline exclude each other",
		"probe --plan --fail-on low https://a.example/":               "--plan and --fail-on exclude each other",
		"probe --plan --ignore x https://a.example/":                  "--plan and --ignore exclude each other",
		"probe --plan --require-all https://a.example/":               "--plan and --require-all exclude each other",
		"probe --advice nginx -o html https://a.example/":             "--advice needs -o text",
		"key indexnow --public private.pem":                           `"indexnow" is wrong`,
		"check " + file:                                               noDatabase,
		"explain --config " + file + " null":                          noDatabase,
		"serve-authz --proxy nginx --config " + file: noDatabase +
			"; want a database, or remove it\nif publishers are looked up in a database, use --database or AMPCORS_DATABASE",
		"check --caches caches.json -":                "--caches has no effect on -",
		"check --with-database -":                     "--with-database has no effect on -",
		"check --database postgres://127.0.0.1:1/x -": "--database has no effect on -",
		"submit --show-key https://a.example/":        "--show-key needs --dry-run",
	} {
		code, stdout, stderr := run(t, "", strings.Fields(line)...)
		if code == exitClean || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, %q; want %q", line, code, stdout, stderr, want)
		}
	}
	if code, _, stderr := run(t, "", "check", "--with-database", file); code != exitClean {
		t.Errorf("%d %s", code, stderr)
	}
	for _, rule := range flagRules { // a rule about a flag that was renamed would be none
		for _, name := range strings.Fields(rule.commands) {
			cmd, _, err := newRoot().Find([]string{name})
			if err != nil || cmd.Name() != name {
				t.Fatalf("%s: %v", name, err)
			}
			for _, flag := range strings.Fields(rule.flags + " " + rule.needs + " " + rule.excludes) {
				if cmd.Flags().Lookup(flag) == nil {
					t.Errorf("%s has no flag %s", name, flag)
				}
			}
		}
	}
}

// members has a value for each member of a configuration file.
var members = map[string]string{
	"$schema": "", "publishers": "", // not for the server; and in each file
	"publishersFile": `"publishers.txt"`, "cachesFile": `"caches.json"`, "source": `{}`, "caches": `[]`,
	"origins": `["https://partner.example"]`,
	"email":   `{"senders": ["news@example.com"]}`, "credentialed": `true`, "methods": `["PUT"]`, "requestHeaders": `["X-Token"]`,
	"responseHeaders": `["X-Total"]`, "maxAge": `"10m"`, "reportOnly": `true`, "dangerouslyAllowAmbiguousPrefixes": `true`,
	"dangerouslyAllowHTTPOwnOrigins": `true`, "dangerouslyAllowPublicSuffixWildcards": `true`,
	"dangerouslyAllowUnsafeRequestsWithoutOrigin": `true`,
}

// Each member of a file is in the advice, or a note says that it is not.
func TestAdviceUsesOrNamesEachMember(t *testing.T) {
	values := members
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "publishers.txt"), "www.example.org\n")
	if err := os.Rename(otherCaches(t), filepath.Join(dir, "caches.json")); err != nil {
		t.Fatal(err)
	}
	advice := func(server, members string) (text, notes string) {
		t.Helper()
		file := filepath.Join(dir, "config.json")
		writeFile(t, file, `{"publishers": ["www.example.com"]`+members+`}`)
		code, text, notes := run(t, "", "advice", server, "--config", file)
		if code != exitClean {
			t.Errorf("%s: exit code %d, %s", members, code, notes)
		}
		return text, notes
	}
	for _, server := range probe.Servers() {
		plain, plainNotes := advice(server, "")
		if strings.Contains(plain, "Allow-Credentials: true") || strings.Contains(plain, "Allow-Credentials true") ||
			strings.Contains(plain, "Credentials', 'true'") || strings.Contains(plain, "Credentialed: true") {
			t.Errorf("%s: credentials are allowed:\n%s", server, plain)
		}
		for _, member := range slices.Sorted(maps.Keys(schemaMembers(t))) {
			value, isKnown := values[member]
			if !isKnown {
				t.Errorf("%s is new: this test needs a value", member)
			}
			if value == "" {
				continue
			}
			if text, notes := advice(server, fmt.Sprintf(`, %q: %s`, member, value)); text == plain && notes == plainNotes {
				t.Errorf("%s: neither the advice nor a note has %s", server, member)
			} else if member == "caches" && strings.Contains(text, "cdn.ampproject.org") {
				t.Errorf("%s: an AMP Cache is allowed, though none is trusted:\n%s", server, text)
			}
		}
	}
}

// What check prints changes with each member of the file.
func TestCheckShowsEachMember(t *testing.T) {
	check := func(members string) string {
		t.Helper()
		file := writeFile(t, filepath.Join(t.TempDir(), "config.json"), `{"publishers": ["www.example.com"]`+members+`}`)
		code, text, stderr := run(t, "", "check", "--with-database", file)
		if code != exitClean {
			t.Errorf("%s: exit code %d, %s", members, code, stderr)
		}
		return text
	}
	plain, withSenders := check(""), check(`, "email": {"senders": ["news@example.com"]}`)
	for member := range schemaMembers(t) {
		value, before := members[member], plain
		switch member {
		case "$schema", "publishers", "source": // in each file; how a database is asked, and not what is allowed
			continue
		case "cachesFile":
			value = fmt.Sprintf("%q", otherCaches(t))
		case "publishersFile":
			value = fmt.Sprintf("%q", filepath.Join(t.TempDir(), "publishers.txt"))
			writeFile(t, strings.Trim(value, `"`), "www.example.org\n")
		}
		if text := check(fmt.Sprintf(`, %q: %s`, member, value)); text == before {
			t.Errorf("%s is not shown:\n%s", member, text)
		}
	}
	for _, clients := range []string{`[]`, `["https://amp.gmail.dev"]`} {
		if text := check(`, "email": {"senders": ["news@example.com"], "clients": ` + clients + `}`); text == withSenders {
			t.Errorf("clients %s are not shown:\n%s", clients, text)
		}
	}
}

// schemaMembers returns the members of a configuration file.
func schemaMembers(t *testing.T) map[string]any {
	t.Helper()
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal(configfile.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	return schema.Properties
}

func TestAdvice(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "config.json"),
		`{"publishers": ["www.example.org"], "caches": ["google"], "methods": ["PUT"], "requestHeaders": ["X-Token"]}`)
	emails := writeFile(t, filepath.Join(t.TempDir(), "emails.json"), `{"email": {"senders": ["news@example.com"]}}`)
	for _, test := range []struct {
		args []string
		code int
		want []string // in the output or the error
	}{
		{[]string{"nginx", "--publisher", "www.example.com,bücher.example"}, exitClean,
			[]string{`"https://www-example-com.www.bing-amp.com" $http_origin;`, `"https://xn--bcher-kva.example" $http_origin;`}},
		{[]string{"haproxy", "--config", file, "--publisher", "www.example.com"}, exitClean,
			[]string{"-m str https://www-example-org.cdn.ampproject.org\n", "-m str https://www.example.com\n", `"GET, POST, PUT"`,
				`"Content-Type, X-Token"`}},
		{[]string{"Caddy", "--caches", otherCaches(t), "--publisher", "www.example.com"}, exitClean, []string{`www-example-com\.cache\.example`}},
		{[]string{"IIS", "--publisher", "www.example.com"}, exitUsage, []string{`there is no advice for "IIS"`}},
		{[]string{"nginx"}, exitUsage, []string{"there is no publisher"}},
		{[]string{"nginx", "--config", emails}, exitUsage, []string{"the file lists no publisher",
			"For AMP for Email requests, origins and databases, put ampcors serve-proxy in front of the backend"}},
		{[]string{"nginx", "--publisher", "*.example.com"}, exitUsage, []string{"name each domain"}},
		{[]string{"nginx", "--publisher", "localhost"}, exitUsage, []string{"has no dot"}},
		{nil, exitUsage, []string{"the name of a server (nginx, "}},
	} {
		code, stdout, stderr := run(t, "", append([]string{"advice"}, test.args...)...)
		for _, want := range test.want {
			if code != test.code || !strings.Contains(stdout+stderr, want) {
				t.Errorf("%q: exit code %d\n%s%s\nwant %q", test.args, code, stdout, stderr, want)
			}
		}
	}
	for _, args := range [][]string{{"advice", "nginx", "--publisher", "a.example", "--no-caches"},
		{"probe", "--plan", "--publisher", "a.example", "--endpoint", "https://api.example/", "--no-caches"}} {
		code, stdout, stderr := run(t, "", args...)
		if code != exitClean || !strings.Contains(stdout, "https://a.example") || args[0] == "advice" && strings.Contains(stdout, "cdn") {
			t.Errorf("%q: %d, %s%s", args, code, stdout, stderr)
		}
	}
	if _, stdout, _ := run(t, "", "advice", "nginx", "--config", file); strings.Contains(stdout, "bing-amp.com") {
		t.Error("the advice has a cache that the file does not trust")
	}
}

func TestCheck(t *testing.T) {
	write := func(name, text string) string { return writeFile(t, filepath.Join(t.TempDir(), name), text) }
	t.Run("valid", func(t *testing.T) {
		file := write("valid.json", `{"publishers": ["a.example", "*.b.example"], "caches": ["google"], "methods": ["GET", "PUT"], `+
			`"requestHeaders": ["content-type", "X-Any"], "credentialed": true, "dangerouslyAllowHTTPOwnOrigins": true}`)
		code, stdout, stderr := run(t, "", "check", file)
		want := "publishers: 1, and 1 pattern\ncaches: google (as the file says)\nfingerprint of the list: 25849672724343\nmethods: GET, HEAD, " +
			"POST, PUT\nrequest headers: Content-Type, X-Any\nresponse headers: AMP-Redirect-To\ncredentials: true\ndangerously allowed: own " +
			"origins with http\n"
		if code != exitClean || stdout != want || stderr != "" {
			t.Errorf("exit code %d\n%s\nwant\n%s\n%s", code, stdout, want, stderr)
		}
		if code, stdout, _ := run(t, "", "check", "-o", "json", file); code != exitClean ||
			json.Unmarshal([]byte(stdout), new(ampcors.Config)) != nil {
			t.Errorf("exit code %d\n%s", code, stdout)
		}
	})
	t.Run("emails alone", func(t *testing.T) {
		code, stdout, stderr := run(t, "", "check", write("emails.json", `{"email": {"senders": ["news@example.com"]}}`))
		if want := "publishers: 0, and 0 patterns\nemail senders: news@example.com\n" +
			"email clients, with version 1: https://mail.google.com\n"; code != exitClean ||
			!strings.HasPrefix(stdout, want) || strings.Contains(stdout, "response headers") {
			t.Errorf("%d, %s%s", code, stdout, stderr)
		}
	})
	t.Run("Caddy's", func(t *testing.T) {
		adapted := `{"apps": {"http": {"servers": {"srv0": {"listen": [":443"], "routes": [{"match": [{"host": ["api.example"]}], ` +
			`"handle": [{"handler": "subroute", "routes": [
			{"match": [{"path": ["/shop/*"]}], "handle": [{"handler": "ampcors", "config": {"publishers": ["shop.example"], "credentialed": true}}]},
			{"handle": [{"handler": "ampcors", "config": {"publishersFile": ` +
			`"` + write("caddys.txt", "a.example\n*.b.example\n") + `"}, "source": {"module": "redis"}}]}]}]}]}}}}}`
		code, stdout, stderr := run(t, adapted, "check", "-")
		for _, want := range []string{"ampcors 1 ({\"host\":[\"api.example\"]} {\"path\":[\"/shop/*\"]})\n\tpublishers: 1, and 0 patterns\n",
			"\tcredentials: true\n",
			"ampcors 2, and publishers in redis ({\"host\":[\"api.example\"]})\n\tpublishers: 1, and 1 pattern\n", "\tcredentials: false\n"} {
			if code != exitClean || !strings.Contains(stdout, want) || stderr != "" {
				t.Errorf("%d, %s%s; want %q", code, stdout, stderr, want)
			}
		}
		if code, stdout, stderr := run(t, strings.Replace(adapted, "shop.example", "shop", 1), "check", "-o", "json",
			"-"); code != exitFindings ||
			!strings.Contains(stderr, "ampcors 1 (") || !strings.Contains(stderr, `publishers[0] "shop" has no dot`) ||
			!strings.Contains(stdout, `"a.example"`) {
			t.Errorf("%d, %s%s", code, stdout, stderr)
		}
		for input, want := range map[string]string{`{"apps": {}}`: "has no ampcors", `{"publishers": ["a.example"]}`: "caddy adapt",
			"": "caddy adapt"} {
			if code, _, stderr := run(t, input, "check", "-"); code == exitClean || !strings.Contains(stderr, want) {
				t.Errorf("%s: %d, %s", input, code, stderr)
			}
		}
	})
	t.Run("an ambiguous prefix", func(t *testing.T) {
		code, stdout, stderr := run(t, "", "check", write("ambiguous.json", `{"publishers": ["a.example", "www.lāstekas.lv"]}`))
		if code != exitClean || !strings.Contains(stdout, "publishers: 2") ||
			!strings.HasPrefix(stderr, "note: publishers are written in Unicode, and which letters are valid depends on its version") ||
			!strings.Contains(stderr, `warning: ampcors: publishers[1] "www.lāstekas.lv" has the domain prefix`) {
			t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
		}
	})
	t.Run("the schema", func(t *testing.T) {
		code, stdout, _ := run(t, "", "check", "--schema")
		if code != exitClean || !json.Valid([]byte(stdout)) || !strings.Contains(stdout, `"publishers"`) {
			t.Errorf("exit code %d\n%s", code, stdout)
		}
	})
	t.Run("a list that is missing", func(t *testing.T) {
		if code, _, stderr := run(t, "", "check", write("list.json", `{"publishersFile": "nowhere.txt"}`)); code != exitFindings {
			t.Errorf("exit code %d\n%s", code, stderr)
		}
	})
	t.Run("invalid", func(t *testing.T) {
		code, stdout, stderr := run(t, "", "check", write("invalid.json", `{"publishers": ["b"]}`))
		if code != exitFindings || stdout != "" || !strings.Contains(stderr, `invalid.json:1:17: publishers[0] "b" has no dot`) {
			t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
		}
	})
}

// article starts a server with an AMP document, and an API that answers * to every request.
func article(t *testing.T) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/article" {
			io.WriteString(w, `<!doctype html><html amp><script async src="https://cdn.ampproject.org/v0.js"></script><amp-list src="/list" `+
				`credentials="include"></amp-list><form method="post" action-xhr="/form"></form><amp-list [src]="'/x'"></amp-list>`)
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", "*")
		io.WriteString(w, `{"<script>": "</script>"}`)
	}))
	t.Cleanup(server.Close)
	return server
}

func TestProbeWritesEachFormat(t *testing.T) {
	server := article(t)
	probeArticle := func(t *testing.T, output string) string {
		t.Helper()
		code, stdout, stderr := run(t, "", "probe", "--rate", "0", "--publisher", "www.example.com", "-H", "X-Api-Key: s3cret", "--cookie",
			"session=s3cret", "-o", output, server.URL+"/article")
		if code != exitFindings || stderr != "" || strings.Contains(stdout, "s3cret") {
			t.Fatalf("exit code %d\n%s\n%s", code, stdout, stderr)
		}
		return stdout
	}
	t.Run("json", func(t *testing.T) {
		var report probe.Report
		if err := json.Unmarshal([]byte(probeArticle(t, "json")), &report); err != nil {
			t.Fatal(err)
		}
		if report.Target != server.URL+"/article" || len(report.Endpoints) != 2 || len(report.Findings) != 1 ||
			report.Findings[0].ID != "wildcard-with-credentials" || report.Summary.High != 1 {
			t.Errorf("%+v", report)
		}
	})
	t.Run("junit", func(t *testing.T) {
		var suites junitSuites
		if err := xml.Unmarshal([]byte(probeArticle(t, "junit")), &suites); err != nil {
			t.Fatal(err)
		}
		s := suites.Suite
		i := slices.IndexFunc(s.Cases, func(c junitCase) bool { return c.Failure != nil })
		if s.Tests != len(s.Cases) || s.Failures != 1+2*len(cacheurl.DefaultCaches()) || s.Skipped < 90 || s.Tests < 190 ||
			s.Cases[i].Failure.Type != "high" || s.Cases[i].Name != "pages: the publisher's own page https://www.example.com" ||
			s.Cases[i].Failure.Message != "wildcard-with-credentials: Access-Control-Allow-Origin is * for a request with credentials" {
			t.Errorf("%+v", s)
		}
	})
	t.Run("sarif", func(t *testing.T) { // by what GitHub's documentation of code scanning says that it reads
		var log struct {
			Version string
			Runs    []struct {
				Tool struct {
					Driver struct {
						Name  string
						Rules []struct {
							ID                     string
							ShortDescription, Help struct{ Text string }
						}
					}
				}
				Invocations []struct {
					ExecutionSuccessful        bool
					ToolExecutionNotifications []struct{ Message struct{ Text string } }
				}
				Results []struct {
					RuleID, Level string
					Message       struct{ Text string }
					Locations     []struct {
						PhysicalLocation struct{ ArtifactLocation struct{ URI string } }
					}
					PartialFingerprints map[string]string
				}
			}
		}
		if err := json.Unmarshal([]byte(probeArticle(t, "sarif")), &log); err != nil || log.Version != "2.1.0" || len(log.Runs) != 1 {
			t.Fatalf("%v: %+v", err, log)
		}
		run := log.Runs[0]
		if len(run.Results) != 1 || len(run.Tool.Driver.Rules) != 1 || len(run.Invocations) != 1 {
			t.Fatalf("%+v", run)
		}
		r, rule, path := run.Results[0], run.Tool.Driver.Rules[0], strings.ReplaceAll(strings.TrimPrefix(server.URL, "http://"), ":", "_")+"/list"
		if r.RuleID != "wildcard-with-credentials" || rule.ID != r.RuleID || r.Level != "error" || rule.ShortDescription.Text == "" ||
			rule.Help.Text == "" || !strings.Contains(r.Message.Text, "Access-Control-Allow-Origin: *") ||
			r.Locations[0].PhysicalLocation.ArtifactLocation.URI != path ||
			r.PartialFingerprints["ampcors/v1"] != "wildcard-with-credentials GET "+server.URL+"/list amp-list, with cookies www.example.com" {
			t.Errorf("%+v", r)
		}
		notTested := run.Invocations[0]
		if !notTested.ExecutionSuccessful || !slices.ContainsFunc(notTested.ToolExecutionNotifications,
			func(n struct{ Message struct{ Text string } }) bool {
				return strings.Contains(n.Message.Text, "only sent with --unsafe")
			}) {
			t.Errorf("%+v", notTested)
		}
	})
	t.Run("html", func(t *testing.T) {
		got := probeArticle(t, "html")
		root, err := html.Parse(strings.NewReader(got))
		if err != nil {
			t.Fatal(err)
		}
		articles := 0
		for n := range root.Descendants() {
			if n.Type == html.ElementNode && n.Data == "article" {
				articles++
			}
			if n.Type == html.ElementNode && (n.Data == "script" || n.Data == "link" || n.Data == "img") {
				t.Errorf("the page is not self-contained: <%s>", n.Data)
			}
		}
		if articles != 1 {
			t.Errorf("%d findings in\n%s", articles, got)
		}
	})
}

func TestExitCodesOfProbe(t *testing.T) {
	broken := article(t)
	clean := public(t)
	granting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Allow-Headers", "content-type")
	}))
	defer granting.Close()
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	for _, test := range []struct {
		name string
		args []string
		code int
		err  string
	}{
		{name: "clean", args: []string{"--endpoint", clean.URL, "--publisher", "www.example.com"}, code: exitClean},
		{name: "findings", args: []string{"--endpoint", clean.URL, "--publisher", "www.example.com", "--credentials"}, code: exitFindings},
		{name: "findings that are not severe enough", args: []string{"--endpoint", clean.URL + "/", "--publisher", "www.example.com", "--fail-on",
			"high"},
			code: exitClean},
		{name: "no argument", code: exitUsage, err: "nothing to test"},
		{name: "no publisher", args: []string{"--endpoint", clean.URL}, code: exitUsage, err: "--publisher"},
		{name: "an unknown severity", args: []string{"--fail-on", "awful", broken.URL}, code: exitUsage, err: "want low, medium, high or none"},
		{name: "an unknown format", args: []string{"-o", "pdf", broken.URL}, code: exitUsage, err: "html"},
		{name: "a wrong header", args: []string{"-H", "secret", broken.URL}, code: exitUsage, err: "no name and colon"},
		{name: "a wrong address", args: []string{"--resolve", "a.example", broken.URL}, code: exitUsage, err: "not host:port:address"},
		{name: "a server that is down", args: []string{"--endpoint", down.URL, "--publisher", "www.example.com"}, code: exitUntested},
		{name: "a document that is not there", args: []string{"--publisher", "www.example.com", down.URL}, code: exitUntested},
		{name: "one server of two that is down", args: []string{"--endpoint", clean.URL, "--endpoint", down.URL, "--publisher",
			"www.example.com"},
			code: exitUntested},
		{name: "the same endpoint twice, and it is down",
			args: []string{"--endpoint", down.URL, "--endpoint", down.URL, "--publisher", "www.example.com"}, code: exitUntested},
		{name: "only a preflight, which is right", args: []string{"--endpoint", granting.URL, "--method", "POST", "--content-type",
			"application/json", "--publisher", "www.example.com"}, code: exitClean},
		{name: "no URL", args: []string{"--endpoint", "foo", "--publisher", "www.example.com"}, code: exitUsage, err: "not the URL"},
		{name: "no document", args: []string{"--publisher", "www.example.com", "ftp://a.example"}, code: exitUsage,
			err: "not the URL of a web server"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := run(t, "", append([]string{"probe", "--rate", "0"}, test.args...)...)
			if code != test.code || !strings.Contains(stderr, test.err) || (stderr == "") != (test.err == "") {
				t.Errorf("exit code %d; want %d\n%s\n%s", code, test.code, stdout, stderr)
			}
		})
	}
}

func TestTheListOfEndpointsIsRead(t *testing.T) {
	server := article(t)
	code, stdout, _ := run(t, "# ours\n\n"+server.URL+"/1\n"+server.URL+"/2\n", "probe", "--rate", "0", "--publisher", "www.example.com",
		"--list", "-", "-o", "json")
	var report probe.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != exitClean || len(report.Endpoints) != 2 {
		t.Errorf("exit code %d, %v\n%s", code, err, stdout)
	}
}

// TestREADMEsTranscript compares the transcript in the README with what the first command
// prints. With UPDATE_README=1, it writes the transcript.
func TestREADMEsTranscript(t *testing.T) {
	server := httptest.NewTLSServer(article(t).Config.Handler)
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "https://")
	_, got, _ := run(t, "", "probe", "--insecure", "--rate", "0", "--max-answer", "2", "--resolve", "www.example.com:443:"+addr,
		"https://www.example.com/article")
	got = strings.ReplaceAll(got, "curl -gsik --connect-to 'www.example.com:443:"+addr+"' ", "curl -gsi ") // without flags of the test
	readme.Check(t, "README.md", "transcript", "```text\n"+got+"```\n")
}

// TestREADMEsCommandsRun runs the commands of the README against a local server in place of
// the servers in the examples.
func TestREADMEsCommandsRun(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(article(t).Config.Handler)
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "https://")
	_, block, _ := strings.Cut(string(readme), "```sh\n")
	block, _, _ = strings.Cut(block, "```")
	lines := 0
	for line := range strings.Lines(block) {
		args, ok := strings.CutPrefix(strings.TrimSpace(line), "go run ./cmd/ampcors ")
		if !ok {
			t.Fatalf("%q is not a call of the command", line)
		}
		lines++
		t.Run(args, func(t *testing.T) {
			all := append(strings.Fields(args), "--insecure", "--rate", "0", "--resolve", "www.example.com:443:"+addr, "--resolve",
				"api.example.com:443:"+addr)
			code, stdout, stderr := run(t, "", all...)
			if code != exitClean && code != exitFindings || stderr != "" || !strings.Contains(stdout, " trials: ") {
				t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
			}
		})
	}
	if lines == 0 {
		t.Error("the README has no command")
	}
}

// A typo in a list is named, for a page and for a sender.
func TestExplainNamesATypo(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "config.json"),
		`{"publishers": ["wwww.example.com", "www.example.net"], "email": {"senders": ["newss@example.com"]}}`)
	for _, test := range []struct{ args, want string }{
		{"https://www.example.com", `Perhaps a typo, unless it was removed: the list has "wwww.example.com", and not "www.example.com".`},
		{"https://www-example-com.cdn.ampproject.org", `the list has "wwww.example.com"`},
		{"https://shop.example", ""},
		{"--sender news@example.com", `the list has "newss@example.com"`},
	} {
		code, stdout, stderr := run(t, "", append([]string{"explain", "--config", file}, strings.Fields(test.args)...)...)
		if code != exitFindings || !strings.Contains(stdout, test.want) || test.want == "" && strings.Contains(stdout, "typo") {
			t.Errorf("%s: exit code %d\n%s%s", test.args, code, stdout, stderr)
		}
	}
}

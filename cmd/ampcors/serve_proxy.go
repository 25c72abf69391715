package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"

	"github.com/ampcors/ampcors"
)

func newServeProxy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve-proxy --config FILE --to URL",
		Short: "Stand in front of a backend, and pass on to it only what is allowed",
		Long: "Stand as a reverse proxy in front of a backend in any language. A request that ampcors denies is not sent " +
			"to the backend, and preflights are answered here. The response gets the CORS headers of ampcors in place of the " +
			"backend's own, and keeps its Vary. The backend gets the publisher whose page calls in " + publisherHeader +
			", and the sender of an AMP email in " + senderHeader + ". What a client sends in headers whose names begin with " +
			"Ampcors- or Ampcors_ is removed.\n\n" +
			"Without --host, Host stays as it came. Without --direct, X-Forwarded-Host and -Proto stay too, if set. The " +
			"address of the client is added to X-Forwarded-For. Clients may use HTTP/2: with --tls-cert, or in cleartext " +
			"by prior knowledge (h2c).\n\n" + aboutConfig,
		Example: "  ampcors serve-proxy --config ampcors.json --to http://127.0.0.1:3000\n" +
			"  ampcors serve-proxy --config ampcors.json --to http://127.0.0.1:3000 --listen :443 --tls-cert cert.pem " +
			"--tls-key key.pem --direct",
		Args: noArgs,
	}
	var s service
	s.addFlags(cmd, "address to listen at, or unix:/path of a socket; only the proxy in front should reach it, unless "+
		"--direct is set")
	var cfg proxyConfig
	flags := cmd.Flags()
	to := flags.String("to", "", "the backend: http://host:port, https://host:port, or unix:/path of a socket")
	ca := flags.String("to-ca", "", "PEM file with the certificates that sign the backend's; if empty, the "+
		"system's are used")
	flags.StringVar(&cfg.host, "host", "", "the Host that the backend gets; if empty, the client's")
	flags.BoolVar(&cfg.isDirect, "direct", false, "no proxy is in front: Forwarded, X-Forwarded-… and X-Real-IP of "+
		"clients are removed")
	flags.DurationVar(&cfg.timeout, "timeout", time.Minute, "how long the backend may take until its response begins; "+
		"0 is no limit")
	flags.StringSliceVar(&cfg.upgrades, "upgrade", []string{"websocket"}, "protocol to which a connection may be "+
		"upgraded; one that carries HTTP is refused, because ampcors does not look into the connection")
	cert := flags.String("tls-cert", "", "PEM file with a certificate, followed by those that sign it, for https; it is "+
		"read again when it changes")
	key := flags.String("tls-key", "", "PEM file with the private key of --tls-cert")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := require(cmd, "config", "to"); err != nil {
			return err
		}
		var errs []error
		note := func(err error) { errs = append(errs, err) }
		var err error
		if cfg.to, err = parseBackend(*to); err != nil {
			note(err)
		}
		if cfg.roots, err = readCA(*ca); err != nil {
			note(err)
		}
		if err := cfg.check(); err != nil {
			note(err)
		}
		var own *keyPair
		if *cert != "" {
			if own, err = readKeyPair(*cert, *key); err != nil {
				note(err)
			}
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		return s.run(cmd, decider{
			set: func(cfg *ampcors.Config, log *slog.Logger) {
				if cfg.ReportOnly {
					log.Warn("ampcors: reportOnly is set: nothing is denied, and forged requests reach the backend")
				}
			},
			server: func(run *running) (*http.Server, error) {
				p := newProxy(cfg, run.mw, run.log)
				if err := p.checkBackend(cmd.Context(), run.listener.Addr()); err != nil {
					return nil, err
				}
				host, _, _ := net.SplitHostPort(s.listen)
				if isLocal := host == "127.0.0.1" || host == "localhost"; cfg.isDirect && own == nil && !isLocal {
					run.log.Warn("ampcors: --direct is set without --tls-cert: what readers send and get, cookies included, " +
						"is not encrypted")
				}
				run.listener = clientListener{run.listener}
				stdlog.SetOutput(unsolicited{p})
				server := p.server()
				if own != nil {
					own.log = run.log
					server.TLSConfig = &tls.Config{GetCertificate: own.get}
				}
				return server, nil
			},
			attrs: []any{"backend", cfg.to.String()},
		})
	}
	return cmd
}

// A backendURL is where a backend listens.
type backendURL struct {
	scheme  string // http or https
	address string // host and port, or the path of a socket
	network string // tcp or unix
}

func (u backendURL) String() string {
	if u.network == "unix" {
		return "unix:" + u.address
	}
	return u.scheme + "://" + u.address
}

// host returns the host of the URLs of requests, which is the Host that the backend gets if the client sends none.
func (u backendURL) host() string {
	if u.network == "unix" {
		return "localhost"
	}
	return u.address
}

// dialAddress returns the address of the backend with its port.
func (u backendURL) dialAddress() string {
	if _, _, err := net.SplitHostPort(u.address); err == nil || u.network == "unix" {
		return u.address
	}
	return net.JoinHostPort(strings.Trim(u.address, "[]"), map[string]string{"http": "80", "https": "443"}[u.scheme])
}

// parseBackend reads the value of --to.
func parseBackend(value string) (backendURL, error) {
	const want = "want http://host:port, https://host:port or unix:/path of a socket"
	if path, ok := strings.CutPrefix(value, "unix:"); ok {
		if path = strings.TrimPrefix(path, "//"); !filepath.IsAbs(path) {
			return backendURL{}, fmt.Errorf("--to %q has no path that begins with a slash; want unix:/path", value)
		}
		return backendURL{"http", path, "unix"}, nil
	}
	if !strings.Contains(value, "://") {
		port := strings.TrimPrefix(value, ":")
		if _, err := strconv.ParseUint(port, 10, 16); err == nil {
			return backendURL{}, fmt.Errorf("--to %q has no scheme and no host; want http://localhost:%s", value, port)
		}
		if u, err := url.Parse("http://" + value); err == nil && u.Hostname() != "" {
			return backendURL{}, fmt.Errorf("--to %q has no scheme; want http://%[2]s or https://%[2]s", value, u.Host)
		}
	}
	u, err := url.Parse(value)
	switch {
	case err != nil, u.Host == "", u.Scheme != "http" && u.Scheme != "https":
		return backendURL{}, fmt.Errorf("--to %q is not the URL of a backend; %s", value, want)
	case u.User != nil:
		return backendURL{}, errors.New("--to has a user or a password, which the backend would not get; want the URL " +
			"without it")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return backendURL{}, fmt.Errorf("--to %q has more than a host: requests keep the path that they have; want %s://%s",
			value, u.Scheme, u.Host)
	case u.Hostname() == "":
		return backendURL{}, fmt.Errorf("--to %q has no host; %s", value, want)
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16)
	if err != nil || port == 0 || strings.HasSuffix(u.Host, ":") {
		return backendURL{}, fmt.Errorf("--to %q has no port from 1 to 65535; %s", value, want)
	}
	return backendURL{u.Scheme, u.Host, "tcp"}, nil
}

// readCA returns the certificates in a file, or nil if there is none.
func readCA(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--to-ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("--to-ca %s has no certificate; want one or more PEM blocks CERTIFICATE", file)
	}
	return roots, nil
}

// check returns what is wrong with flags that belong together.
func (cfg proxyConfig) check() error {
	var errs []error
	if cfg.roots != nil && cfg.to.scheme == "http" {
		errs = append(errs, fmt.Errorf("--to-ca has no effect on %s; want https://", cfg.to))
	}
	if cfg.timeout < 0 {
		errs = append(errs, fmt.Errorf("--timeout %v is negative; want a duration such as 1m, or 0 for no limit",
			cfg.timeout))
	}
	if !httpguts.ValidHostHeader(cfg.host) || strings.ContainsAny(cfg.host, "/@") {
		errs = append(errs, fmt.Errorf("--host %q is not a Host; want one such as api.example.com", cfg.host))
	}
	for _, protocol := range cfg.upgrades {
		name, _, _ := strings.Cut(strings.ToLower(protocol), "/")
		if slices.Contains([]string{"", "h2", "h2c", "http", "spdy", "tls"}, name) {
			errs = append(errs, fmt.Errorf("--upgrade %q carries HTTP requests, and nothing would decide on them; want "+
				"another protocol, such as websocket", protocol))
		}
	}
	return errors.Join(errs...)
}

// A keyPair is a certificate that is read again when one of its files changes.
type keyPair struct {
	cert, key string // files
	log       *slog.Logger

	mu      sync.Mutex
	loaded  *tls.Certificate
	changed [2]time.Time // of the files, when they were read last
	failed  string       // the last error, which is logged once
}

func readKeyPair(cert, key string) (*keyPair, error) {
	k := &keyPair{cert: cert, key: key}
	return k, k.load()
}

// times returns when the files changed last. A file that is not there has the zero time.
func (k *keyPair) times() (times [2]time.Time) {
	for i, name := range []string{k.cert, k.key} {
		if info, err := os.Stat(name); err == nil {
			times[i] = info.ModTime()
		}
	}
	return times
}

func (k *keyPair) load() error {
	k.changed = k.times() // before they are read: a change in between is seen
	loaded, err := tls.LoadX509KeyPair(k.cert, k.key)
	if err != nil {
		return fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	k.loaded = &loaded
	return nil
}

// get is a tls.Config.GetCertificate. If the new files do not belong together, the next change of one of them is the
// next try: whoever renews a certificate writes one file after the other.
func (k *keyPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.times() == k.changed {
		return k.loaded, nil
	}
	if err := k.load(); err == nil {
		k.failed = ""
		k.log.Info("ampcors: the certificate has changed", "file", k.cert)
	} else if k.failed != err.Error() {
		k.failed = err.Error()
		k.log.Error("ampcors: the certificate has changed, and the new one is not used", "cause", err)
	}
	return k.loaded, nil
}

// checkBackend logs whether the backend can be reached. It is an error if the backend is this proxy. A backend that is
// down is none: it may start later.
func (p *proxy) checkBackend(ctx context.Context, own net.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := p.dial(ctx, "", "")
	if err == nil {
		defer conn.Close()
		if isSelf(own, conn.RemoteAddr()) {
			return fmt.Errorf("--to %s is this proxy itself, by --listen; want the address of the backend", p.to)
		}
		if p.to.scheme == "https" {
			if conn, err = p.dialTLS(ctx, "", ""); err == nil {
				conn.Close()
			}
		}
	}
	if err != nil {
		p.isDown.Store(true)
		p.log.Warn("ampcors: the backend cannot be reached yet; until it can, responses are 502",
			"backend", p.to.String(), "cause", p.causeOf(err))
	}
	return nil
}

// isSelf reports whether a connection to an address led to the listener at own.
func isSelf(own, to net.Addr) bool {
	listener, ok := own.(*net.TCPAddr)
	remote, ok2 := to.(*net.TCPAddr)
	if !ok || !ok2 {
		return own.Network() == "unix" && to.Network() == "unix" && own.String() == to.String()
	}
	if listener.Port != remote.Port {
		return false
	}
	if !listener.IP.IsUnspecified() {
		return listener.IP.Equal(remote.IP)
	}
	addresses, _ := net.InterfaceAddrs() // those of this machine; none if they are not known
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.Equal(remote.IP) {
			return true
		}
	}
	return remote.IP.IsLoopback()
}

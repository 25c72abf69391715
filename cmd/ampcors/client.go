package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// httpClient sends the requests. Tests replace it.
var httpClient = &http.Client{Timeout: 30 * time.Second}

// resolvingClient returns an HTTP client that connects to other addresses for some hosts, as curl --resolve does,
// and may accept any certificate.
func resolvingClient(resolve []string, isInsecure bool) (*http.Client, error) {
	if len(resolve) == 0 && !isInsecure {
		return httpClient, nil
	}
	addrs, err := addresses(resolve)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, cmp.Or(addrs[addr], addr))
	}
	if isInsecure {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	}
	return &http.Client{Timeout: httpClient.Timeout, Transport: transport}, nil
}

// withoutRedirects returns a copy of a client that follows no redirects.
func withoutRedirects(client *http.Client) *http.Client {
	own := *client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

// withoutURL returns an error of a client without the URL, which may have a secret, or is known.
func withoutURL(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// addresses returns what --resolve says, by host and port.
func addresses(resolve []string) (map[string]string, error) {
	addrs := make(map[string]string)
	for _, value := range resolve {
		host, rest, _ := strings.Cut(value, ":")
		port, addr, ok := strings.Cut(rest, ":")
		if _, _, err := net.SplitHostPort(addr); err != nil {
			addr = net.JoinHostPort(strings.Trim(addr, "[]"), port)
		}
		ip, _, err := net.SplitHostPort(addr)
		if number, portErr := strconv.ParseUint(port, 10, 16); !ok || host == "" || number == 0 || portErr != nil ||
			err != nil ||
			net.ParseIP(ip) == nil {
			return nil, fmt.Errorf("--resolve %q is not host:port:address; want one such as www.example.com:443:127.0.0.1",
				value)
		}
		addrs[net.JoinHostPort(host, port)] = addr
	}
	return addrs, nil
}

const resolveHelp = "host:port:addr, as curl: connect to this address for the host and port; host:port:addr:port for " +
	"another port"

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/authtest"
	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// reviewTTL is how long the API server's answers are remembered in this test.
const reviewTTL = 15 * time.Second

// grants are users by what they may do, which is one thing each. Those of the first three are told apart by the page that only they see.
const (
	userGrant      = "get configz"
	accountGrant   = "get pods"
	anonymousGrant = "get healthz"
)

func grants() []string {
	return []string{userGrant, accountGrant, anonymousGrant, "get proxy", "create proxy", "get metrics", "get stats", "get log", "nothing"}
}

// role grants one thing: a verb on a subresource of nodes, to a subject.
func role(name, grant, only, subject string) string {
	verb, subresource, _ := strings.Cut(grant, " ")
	return fmt.Sprintf(`
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: access-%[1]s}
rules: [{apiGroups: [""], resources: [nodes/%[3]s], verbs: [%[2]s]%[4]s}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: access-%[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: access-%[1]s}
subjects: [%[5]s]
`, name, verb, subresource, only, subject)
}

func userSubject(name string) string {
	return fmt.Sprintf("{apiGroup: rbac.authorization.k8s.io, kind: User, name: %q}", name)
}

// gate is a node's own API, asked without the API server between.
type gate struct {
	node, url string
	runByGet  bool // who may get nodes/proxy may run commands, as at a kubelet
}

// credentials are what a request says about who sends it.
type credentials struct {
	client *http.Client // with its certificate
	header http.Header
}

// present returns credentials of a certificate, which the client sends whatever authorities the server names, and of headers.
func present(t *testing.T, pair tls.Certificate, header http.Header) credentials {
	config := &tls.Config{InsecureSkipVerify: true} // both have certificates of their own making
	if pair.Certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return credentials{&http.Client{Transport: transport, Timeout: timeout}, header}
}

// code asks and returns the status of the answer.
func (g gate) code(t *testing.T, c credentials, method, path string) int {
	req, err := http.NewRequestWithContext(t.Context(), method, g.url+path, nil)
	if !assert.NoError(t, err) {
		return 0
	}
	req.Header = c.header.Clone()
	resp, err := c.client.Do(req)
	if !assert.NoError(t, err) {
		return 0
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	assert.NoError(t, err)
	return resp.StatusCode
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// subprotocol is a token as a browser sends it.
func subprotocol(token string) http.Header {
	return http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {
		"base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token)) + ", v4.channel.k8s.io",
	}}
}

// accessTest has who asks, and a node or two that are asked.
type accessTest struct {
	*member
	ca, foreign *authtest.Authority
	caFile      string // of both authorities
	uid         string // of the service account
}

// TestClusterAccess: who may do what at the node's own API is what the RBAC of the real API server says, for all kinds of credentials,
// and is the same at kubelet 1.37.1, but for what runs something by GET. Bad credentials never become those of nobody.
func TestClusterAccess(t *testing.T) {
	a := &accessTest{member: newProxied(t, map[string]any{}), ca: authtest.NewAuthority(t, "clients"), foreign: authtest.NewAuthority(t, "clients")}
	a.caFile = filepath.Join(t.TempDir(), "clients.crt")
	require.NoError(t, os.WriteFile(a.caFile, slices.Concat(a.CA(), a.ca.PEM()), 0o600))
	roles := "{apiVersion: v1, kind: ServiceAccount, metadata: {name: caller}}" +
		role("anonymous", anonymousGrant, "", userSubject("system:anonymous")) +
		role("account", accountGrant, "", "{kind: ServiceAccount, namespace: default, name: caller}") +
		role("one-node", "get pods", ", resourceNames: [n1]", userSubject("one node"))
	for _, grant := range grants()[:len(grants())-1] {
		roles += role(strings.ReplaceAll(grant, " ", "-"), grant, "", userSubject(grant))
	}
	a.apply(roles)
	a.uid = a.do("get", "serviceaccount", "caller", "-o", "jsonpath={.metadata.uid}")

	for _, anonymous := range []bool{false, true} {
		t.Run(fmt.Sprintf("anonymous %t", anonymous), func(t *testing.T) {
			own := *a
			own.member = a.in(t)
			gates := own.open(anonymous)
			t.Run("credentials", func(t *testing.T) { own.authenticates(t, gates, anonymous) })
			if !anonymous {
				t.Run("grants", func(t *testing.T) { own.authorizes(t, gates) })
				return
			}
			t.Run("API server away", func(t *testing.T) { own.remembers(t, gates) })
			t.Run("API server silent", func(t *testing.T) { own.waits(t, gates[0]) })
		})
	}
}

// open starts the agent anew, and a kubelet, with the same fields in their configuration.
func (a *accessTest) open(anonymous bool) []gate {
	fields := map[string]any{
		"authentication": map[string]any{
			"x509":      map[string]any{"clientCAFile": a.caFile},
			"webhook":   map[string]any{"enabled": true, "cacheTTL": reviewTTL.String()},
			"anonymous": map[string]any{"enabled": anonymous},
		},
		"authorization": map[string]any{"mode": "Webhook", "webhook": map[string]any{
			"cacheAuthorizedTTL": reviewTTL.String(), "cacheUnauthorizedTTL": reviewTTL.String(),
		}},
	}
	maps.Copy(a.config, fields)
	a.agent.Kill()
	a.agent = nil
	a.restart()
	kubelet := exetest.FreePort(a.t)
	peer := maps.Clone(fields)
	peer["port"] = kubelet
	a.peer("127.0.0.1", peer)
	at := func(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }
	gates := []gate{{"n1", at(a.port), false}, {"n2", at(kubelet), true}}
	for _, g := range gates {
		root := a.rootCredentials(a.t)
		exetest.Eventually(a.t, clusterTimeout, func() error {
			req, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, g.url+"/pods", nil)
			if err != nil {
				return err
			}
			resp, err := root.client.Do(req)
			if err != nil {
				return err
			}
			if resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s answers %s", g.node, resp.Status)
			}
			_ = resp.Body.Close()
			return err
		})
	}
	return gates
}

// rootCredentials are those of who may do everything.
func (a *accessTest) rootCredentials(t *testing.T) credentials {
	pair, err := a.ClientCertificate("root", "system:masters")
	require.NoError(t, err)
	return present(t, pair, nil)
}

// user returns the credentials of a user with a valid certificate.
func (a *accessTest) user(t *testing.T, name string) credentials {
	return present(t, a.ca.Sign(t, certificateOf(name)), nil)
}

func certificateOf(name string) x509.Certificate {
	return x509.Certificate{
		Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// token returns a new token of the service account.
func (a *accessTest) token() string { return a.do("create", "token", "caller") }

// validity says what some credentials are.
type validity int

const (
	none validity = iota
	bad
	valid
)

type certificateCase struct {
	pair tls.Certificate
	is   validity
}

type tokenCase struct {
	header http.Header
	is     validity
}

func (a *accessTest) certificates(t *testing.T) map[string]certificateCase {
	now := time.Now()
	with := func(change func(*x509.Certificate)) tls.Certificate {
		c := certificateOf(userGrant)
		change(&c)
		return a.ca.Sign(t, c)
	}
	return map[string]certificateCase{
		"none":          {},
		"foreign":       {a.foreign.Sign(t, certificateOf(userGrant)), bad},
		"expired":       {with(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(-2*time.Hour), now.Add(-time.Hour) }), bad},
		"not yet valid": {with(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(time.Hour), now.Add(2*time.Hour) }), bad},
		"wrong usage":   {with(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), bad},
		"valid":         {a.ca.Sign(t, certificateOf(userGrant)), valid},
	}
}

func (a *accessTest) tokens(t *testing.T) map[string]tokenCase {
	signed := func(uid string, expires time.Time) string {
		token, err := a.ServiceAccountToken("default", "caller", uid, expires)
		require.NoError(t, err)
		return token
	}
	issued, hour := a.token(), time.Now().Add(time.Hour)
	cases := map[string]tokenCase{"none": {}}
	for name, token := range map[string]struct {
		text string
		is   validity
	}{
		"issued":             {issued, valid},
		"signed here":        {signed(a.uid, hour), valid}, // so that it is the time that is wrong with the next one
		"expired":            {signed(a.uid, time.Now().Add(-time.Hour)), bad},
		"of another account": {signed("a UID that was", hour), bad},
		"with a letter less": {issued[:len(issued)-2], bad},
	} {
		cases[name] = tokenCase{bearer(token.text), token.is}
		cases[name+", as a subprotocol"] = tokenCase{subprotocol(token.text), token.is}
	}
	both := subprotocol(issued)
	both["Authorization"] = bearer("bad")["Authorization"]
	cases["bad, and issued as a subprotocol"] = tokenCase{both, valid}
	return cases
}

// authenticates sends all kinds of certificates with all kinds of tokens. Who the node takes the request to be from is told by the page
// that may be seen.
func (a *accessTest) authenticates(t *testing.T, gates []gate, anonymous bool) {
	pages := map[string]string{userGrant: "/configz", accountGrant: "/pods", anonymousGrant: "/healthz"}
	tokens, asked := a.tokens(t), 0
	for certificate, c := range a.certificates(t) {
		base := present(t, c.pair, nil)
		for token, tc := range tokens {
			who := "" // nobody
			switch {
			case c.is == valid:
				who = userGrant
			case tc.is == valid:
				who = accountGrant
			case c.is == none && tc.is == none && anonymous:
				who = anonymousGrant
			}
			for owner, page := range pages {
				want := http.StatusForbidden
				switch who {
				case "":
					want = http.StatusUnauthorized
				case owner:
					want = http.StatusOK
				}
				for _, g := range gates {
					got := g.code(t, credentials{base.client, tc.header}, http.MethodGet, page)
					assert.Equal(t, want, got, "%s: GET %s with certificate %s and token %s", g.node, page, certificate, token)
					asked++
				}
			}
		}
	}
	t.Logf("%d requests", asked)
}

// request is one that needs one of some grants. Who has one gets the code.
type request struct {
	method, path string
	code         int
	needs        []string
}

// requests are those of all subresources. None reaches a pod.
func requests() []request {
	const none = "default/none"
	proxied := func(name string) []string { return []string{"get " + name, "get proxy"} }
	return []request{
		{"GET", "/healthz", 200, proxied("healthz")},
		{"HEAD", "/healthz", 200, nil},
		{"GET", "/pods", 200, proxied("pods")},
		{"GET", "/runningpods/", 200, proxied("pods")},
		{"GET", "/podsx", 404, grants()}, // whoever asks is told that there is no such page
		{"DELETE", "/pods", 405, nil},
		{"GET", "/configz", 200, proxied("configz")},
		{"GET", "/stats/summary", 200, []string{"get stats"}},
		{"GET", "/metrics", 200, []string{"get metrics"}},
		{"GET", "/metrics/resource", 200, []string{"get metrics"}},
		{"GET", "/logs/", 200, []string{"get log"}},
		{"GET", "/debug/pprof/cmdline", 200, []string{"get proxy"}},
		{"GET", "/nothing", 404, grants()},
		{"GET", "/containerLogs/" + none + "/main", 404, []string{"get proxy"}},
		{"POST", "/checkpoint/" + none + "/main", 404, nil},
		{"POST", "/run/" + none + "/main?cmd=true", 404, []string{"create proxy"}},
		{"GET", "/run/" + none + "/main?cmd=true", 405, []string{"get proxy"}},
		{"POST", "/exec/" + none + "/main?command=true&output=1", 404, []string{"create proxy"}},
		{"GET", "/exec/" + none + "/main?command=true&output=1", 404, []string{"get proxy"}},
		{"POST", "/attach/" + none + "/main?output=1", 404, []string{"create proxy"}},
		{"GET", "/attach/" + none + "/main?output=1", 404, []string{"get proxy"}},
		{"POST", "/portForward/" + none, 404, []string{"create proxy"}},
		{"GET", "/portForward/" + none, 404, []string{"get proxy"}},
	}
}

// runsByGet reports whether something is run in a pod, or its ports are reached, by GET.
func (r request) runsByGet() bool {
	first, _, _ := strings.Cut(r.path[1:], "/")
	return r.method == http.MethodGet && slices.Contains([]string{"run", "exec", "attach", "portForward"}, first)
}

// authorizes has users that may do one thing each try everything.
func (a *accessTest) authorizes(t *testing.T, gates []gate) {
	root, nobody, asked := a.rootCredentials(t), present(t, tls.Certificate{}, nil), 0
	users := map[string]credentials{}
	for _, grant := range grants() {
		users[grant] = a.user(t, grant)
	}
	for _, r := range requests() {
		for _, g := range gates {
			assert.Equal(t, r.code, g.code(t, root, r.method, r.path), "%s: %s %s by who may do everything", g.node, r.method, r.path)
			needs, unknown := r.needs, http.StatusUnauthorized
			if slices.Contains(needs, "nothing") {
				unknown = r.code
			}
			assert.Equal(t, unknown, g.code(t, nobody, r.method, r.path), "%s: %s %s by nobody", g.node, r.method, r.path)
			if r.runsByGet() && !g.runByGet {
				needs = []string{"create proxy"} // the exception
			}
			for grant, user := range users {
				want := http.StatusForbidden
				if slices.Contains(needs, grant) {
					want = r.code
				}
				assert.Equal(t, want, g.code(t, user, r.method, r.path), "%s: %s %s by who may %s", g.node, r.method, r.path, grant)
				asked++
			}
		}
	}
	one := a.user(t, "one node")
	for _, g := range gates {
		want := map[string]int{"n1": http.StatusOK, "n2": http.StatusForbidden}[g.node]
		assert.Equal(t, want, g.code(t, one, http.MethodGet, "/pods"), "%s: by who may see the pods of n1", g.node)
	}
	t.Logf("%d requests", asked)
}

// remembers kills the API server: what it has said holds for its time, and nothing else does.
func (a *accessTest) remembers(t *testing.T, gates []gate) {
	user := "remembered"
	a.apply(role("remembered", userGrant, "", userSubject(user)))
	known, unknown := a.user(t, user), a.user(t, userGrant+"?")
	account, bad, later := present(t, tls.Certificate{}, bearer(a.token())), present(t, tls.Certificate{}, bearer("bad as well")), present(t, tls.Certificate{}, bearer(a.token()))
	holds := func(g gate) {
		assert.Equal(t, http.StatusOK, g.code(t, account, http.MethodGet, "/pods"), g.node)
		assert.Equal(t, http.StatusForbidden, g.code(t, account, http.MethodGet, "/configz"), g.node)
		assert.Equal(t, http.StatusOK, g.code(t, known, http.MethodGet, "/configz"), g.node)
		assert.Equal(t, http.StatusForbidden, g.code(t, known, http.MethodGet, "/pods"), g.node)
		assert.Equal(t, http.StatusUnauthorized, g.code(t, bad, http.MethodGet, "/healthz"), g.node)
	}
	began := time.Now()
	for _, g := range gates {
		holds(g)
	}
	asked := time.Now()
	a.proxy.SetUnavailable(true) // or it would answer in its place
	require.NoError(t, a.Kill(controlplane.APIServer))
	for _, g := range gates {
		holds(g)
	}
	require.Less(t, time.Since(began), reviewTTL, "too slow to tell what is remembered")
	var all sync.WaitGroup
	for _, g := range gates {
		all.Go(func() {
			g.refuses(t, later, unknown)
			// A token that is forgotten is nobody's; a right that is forgotten is an error.
			for _, c := range []struct {
				credentials
				path string
				code int
			}{{account, "/pods", http.StatusUnauthorized}, {known, "/configz", http.StatusInternalServerError}} {
				code := http.StatusOK
				for code == http.StatusOK && time.Since(asked) < 2*reviewTTL {
					time.Sleep(100 * time.Millisecond)
					code = g.code(t, c.credentials, http.MethodGet, c.path)
				}
				assert.Equal(t, c.code, code, "%s: GET %s after its time", g.node, c.path)
				assert.GreaterOrEqual(t, time.Since(began), reviewTTL, "%s: GET %s", g.node, c.path)
			}
		})
	}
	all.Wait()
	require.NoError(t, a.Restart(t.Context(), controlplane.APIServer))
	a.proxy.SetUnavailable(false)
	for _, g := range gates {
		exetest.Eventually(t, timeout, func() error {
			if code := g.code(t, account, http.MethodGet, "/pods"); code != http.StatusOK {
				return fmt.Errorf("%s answers %d", g.node, code)
			}
			return nil
		})
		holds(g)
		assert.Equal(t, http.StatusOK, g.code(t, later, http.MethodGet, "/pods"), g.node)
	}
}

// refuses asks with a token and as a user that the API server was not asked about, while it does not answer.
func (g gate) refuses(t *testing.T, token, user credentials) {
	for _, c := range []struct {
		credentials
		code int
	}{{token, http.StatusUnauthorized}, {user, http.StatusInternalServerError}} {
		began := time.Now()
		assert.Equal(t, c.code, g.code(t, c.credentials, http.MethodGet, "/pods"), g.node)
		took := time.Since(began)
		assert.Less(t, took, 12*time.Second, g.node)
		t.Logf("%s: %d after %v", g.node, c.code, took.Round(10*time.Millisecond))
	}
}

// waits has the API server take what it is sent and not answer.
func (a *accessTest) waits(t *testing.T, g gate) {
	token, user := present(t, tls.Certificate{}, bearer(a.token())), a.user(t, "of whom nobody knows")
	a.proxy.SetBlackHole(true)
	defer a.proxy.SetBlackHole(false)
	g.refuses(t, token, user)
}

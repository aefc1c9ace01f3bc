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

// reviewTTL is how long the nodes cache reviews of the API server in this test.
const reviewTTL = 15 * time.Second

// Each grant is the name of a user with exactly this permission. Each of the first three permits another page, by which the
// test recognizes the identity of a request.
const (
	userGrant      = "get configz"
	accountGrant   = "get pods"
	anonymousGrant = "get healthz"
)

func grants() []string {
	return []string{userGrant, accountGrant, anonymousGrant, "get proxy", "create proxy", "get metrics", "get stats", "get log", "nothing"}
}

// roleYAML grants a subject one verb on one subresource of nodes.
func roleYAML(name, grant, only, subject string) string {
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

// nodeEndpoint is the API of a node, called without the API server in between.
type nodeEndpoint struct {
	node, url string
	getMayRun bool // get nodes/proxy permits to run commands, as in a kubelet
}

// credentials are the client certificate and the headers of a request.
type credentials struct {
	client *http.Client // with its certificate
	header http.Header
}

// newCredentials returns credentials of a certificate and headers. The client sends the certificate even if the server does
// not list its authority.
func newCredentials(t *testing.T, pair tls.Certificate, header http.Header) credentials {
	config := &tls.Config{InsecureSkipVerify: true} // both nodes have self-signed certificates
	if pair.Certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return credentials{&http.Client{Transport: transport, Timeout: timeout}, header}
}

// statusCode sends a request and returns the status code of the response.
func (g nodeEndpoint) statusCode(t *testing.T, c credentials, method, path string) int {
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

func bearerHeader(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// subprotocolHeader has a token in the form of a browser.
func subprotocolHeader(token string) http.Header {
	return http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {
		"base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token)) + ", v4.channel.k8s.io",
	}}
}

// accessTest has an agent and the credentials of its clients.
type accessTest struct {
	*member
	ca, foreign *authtest.Authority
	caFile      string // certificates of both authorities
	uid         string // of the service account
}

// TestClusterAccess compares the access to the API of the agent with the RBAC of the real API server, for all kinds of
// credentials. kubelet 1.37.1 decides equally, except for GET requests that run a command. A request with invalid
// credentials is never accepted as anonymous.
func TestClusterAccess(t *testing.T) {
	a := &accessTest{member: newProxied(t, map[string]any{}), ca: authtest.NewAuthority(t, "clients"), foreign: authtest.NewAuthority(t, "clients")}
	a.caFile = filepath.Join(t.TempDir(), "clients.crt")
	require.NoError(t, os.WriteFile(a.caFile, slices.Concat(a.CA(), a.ca.PEM()), 0o600))
	roles := "{apiVersion: v1, kind: ServiceAccount, metadata: {name: caller}}" +
		roleYAML("anonymous", anonymousGrant, "", userSubject("system:anonymous")) +
		roleYAML("account", accountGrant, "", "{kind: ServiceAccount, namespace: default, name: caller}") +
		roleYAML("one-node", "get pods", ", resourceNames: [n1]", userSubject("one node"))
	for _, grant := range grants()[:len(grants())-1] {
		roles += roleYAML(strings.ReplaceAll(grant, " ", "-"), grant, "", userSubject(grant))
	}
	a.apply(roles)
	a.uid = a.do("get", "serviceaccount", "caller", "-o", "jsonpath={.metadata.uid}")

	for _, anonymous := range []bool{false, true} {
		t.Run(fmt.Sprintf("anonymous %t", anonymous), func(t *testing.T) {
			own := *a
			own.member = a.forTest(t)
			gates := own.restartServers(anonymous)
			t.Run("credentials", func(t *testing.T) { own.checkAuthentication(t, gates, anonymous) })
			if !anonymous {
				t.Run("grants", func(t *testing.T) { own.checkAuthorization(t, gates) })
				return
			}
			t.Run("API server unavailable", func(t *testing.T) { own.checkReviewCache(t, gates) })
			t.Run("API server hangs", func(t *testing.T) { own.checkHungReviews(t, gates[0]) })
		})
	}
}

// restartServers restarts the agent and starts a kubelet, with the same fields in their configuration.
func (a *accessTest) restartServers(anonymous bool) []nodeEndpoint {
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
	a.startPeer("127.0.0.1", peer)
	urlOf := func(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }
	gates := []nodeEndpoint{{"n1", urlOf(a.port), false}, {"n2", urlOf(kubelet), true}}

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

// rootCredentials are credentials of a user with all permissions.
func (a *accessTest) rootCredentials(t *testing.T) credentials {
	pair, err := a.ClientCertificate("root", "system:masters")
	require.NoError(t, err)
	return newCredentials(t, pair, nil)
}

// userCredentials returns the credentials of a user with a valid certificate.
func (a *accessTest) userCredentials(t *testing.T, name string) credentials {
	return newCredentials(t, a.ca.Sign(t, certificateOf(name)), nil)
}

func certificateOf(name string) x509.Certificate {
	return x509.Certificate{
		Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// createToken returns a new token of the service account.
func (a *accessTest) createToken() string { return a.do("create", "token", "caller") }

// credentialState is the state of a certificate or a token.
type credentialState int

const (
	noCredential credentialState = iota
	badCredential
	validCredential
)

type certificateCase struct {
	pair  tls.Certificate
	state credentialState
}

type tokenCase struct {
	header http.Header
	state  credentialState
}

func (a *accessTest) certificateCases(t *testing.T) map[string]certificateCase {
	now := time.Now()
	signChanged := func(change func(*x509.Certificate)) tls.Certificate {
		c := certificateOf(userGrant)
		change(&c)
		return a.ca.Sign(t, c)
	}
	return map[string]certificateCase{
		"none":          {},
		"foreign":       {a.foreign.Sign(t, certificateOf(userGrant)), badCredential},
		"expired":       {signChanged(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(-2*time.Hour), now.Add(-time.Hour) }), badCredential},
		"not yet valid": {signChanged(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(time.Hour), now.Add(2*time.Hour) }), badCredential},
		"wrong usage":   {signChanged(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), badCredential},
		"valid":         {a.ca.Sign(t, certificateOf(userGrant)), validCredential},
	}
}

func (a *accessTest) tokenCases(t *testing.T) map[string]tokenCase {
	signed := func(uid string, expires time.Time) string {
		token, err := a.ServiceAccountToken("default", "caller", uid, expires)
		require.NoError(t, err)
		return token
	}
	issued, hour := a.createToken(), time.Now().Add(time.Hour)
	cases := map[string]tokenCase{"none": {}}
	for name, token := range map[string]struct {
		text  string
		state credentialState
	}{
		"issued":                 {issued, validCredential},
		"signed here":            {signed(a.uid, hour), validCredential}, // so that only the time differs in the next case
		"expired":                {signed(a.uid, time.Now().Add(-time.Hour)), badCredential},
		"deleted account":        {signed("a UID that was", hour), badCredential},
		"two characters missing": {issued[:len(issued)-2], badCredential},
	} {
		cases[name] = tokenCase{bearerHeader(token.text), token.state}
		cases[name+", as a subprotocol"] = tokenCase{subprotocolHeader(token.text), token.state}
	}
	both := subprotocolHeader(issued)
	both["Authorization"] = bearerHeader("bad")["Authorization"]
	cases["bad, with issued token as a subprotocol"] = tokenCase{both, validCredential}
	return cases
}

// checkAuthentication sends all certificates with all tokens. The one page that a request may read shows its identity.
func (a *accessTest) checkAuthentication(t *testing.T, gates []nodeEndpoint, anonymous bool) {
	pages := map[string]string{userGrant: "/configz", accountGrant: "/pods", anonymousGrant: "/healthz"}
	tokens, asked := a.tokenCases(t), 0
	for certificate, c := range a.certificateCases(t) {
		base := newCredentials(t, c.pair, nil)
		for token, tc := range tokens {
			identity := "" // unauthenticated
			switch {
			case c.state == validCredential:
				identity = userGrant
			case tc.state == validCredential:
				identity = accountGrant
			case c.state == noCredential && tc.state == noCredential && anonymous:
				identity = anonymousGrant
			}
			for owner, page := range pages {
				want := http.StatusForbidden
				switch identity {
				case "":
					want = http.StatusUnauthorized
				case owner:
					want = http.StatusOK
				}
				for _, g := range gates {
					got := g.statusCode(t, credentials{base.client, tc.header}, http.MethodGet, page)
					assert.Equal(t, want, got, "%s: GET %s with certificate %s and token %s", g.node, page, certificate, token)
					asked++
				}
			}
		}
	}
	t.Logf("%d requests", asked)
}

// accessRequest is a request that needs one of several grants. code is the status for a user with such a grant.
type accessRequest struct {
	method, path string
	code         int
	needs        []string
}

// accessRequests returns requests of all subresources. None reaches a pod.
func accessRequests() []accessRequest {
	const none = "default/none"
	proxied := func(name string) []string { return []string{"get " + name, "get proxy"} }
	return []accessRequest{
		{"GET", "/healthz", 200, proxied("healthz")},
		{"HEAD", "/healthz", 200, nil},
		{"GET", "/pods", 200, proxied("pods")},
		{"GET", "/runningpods/", 200, proxied("pods")},
		{"GET", "/podsx", 404, grants()}, // any authenticated client gets Not Found
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

// runsByGet reports whether the request runs a command in a pod, or connects to its ports, by GET.
func (r accessRequest) runsByGet() bool {
	first, _, _ := strings.Cut(r.path[1:], "/")
	return r.method == http.MethodGet && slices.Contains([]string{"run", "exec", "attach", "portForward"}, first)
}

// checkAuthorization sends each request as each user, who has one permission each.
func (a *accessTest) checkAuthorization(t *testing.T, gates []nodeEndpoint) {
	root, anonymous, asked := a.rootCredentials(t), newCredentials(t, tls.Certificate{}, nil), 0
	users := map[string]credentials{}
	for _, grant := range grants() {
		users[grant] = a.userCredentials(t, grant)
	}

	for _, r := range accessRequests() {
		for _, g := range gates {
			assert.Equal(t, r.code, g.statusCode(t, root, r.method, r.path), "%s: %s %s by a user with all permissions", g.node, r.method, r.path)
			needs, unknown := r.needs, http.StatusUnauthorized
			if slices.Contains(needs, "nothing") {
				unknown = r.code
			}
			assert.Equal(t, unknown, g.statusCode(t, anonymous, r.method, r.path), "%s: %s %s without credentials", g.node, r.method, r.path)
			if r.runsByGet() && !g.getMayRun {
				needs = []string{"create proxy"} // unlike in a kubelet
			}
			for grant, user := range users {
				want := http.StatusForbidden
				if slices.Contains(needs, grant) {
					want = r.code
				}
				assert.Equal(t, want, g.statusCode(t, user, r.method, r.path), "%s: %s %s by a user with permission %s", g.node, r.method, r.path, grant)
				asked++
			}
		}
	}

	one := a.userCredentials(t, "one node")
	for _, g := range gates {
		want := map[string]int{"n1": http.StatusOK, "n2": http.StatusForbidden}[g.node]
		assert.Equal(t, want, g.statusCode(t, one, http.MethodGet, "/pods"), "%s: by a user who may get the pods of n1", g.node)
	}
	t.Logf("%d requests", asked)
}

// checkReviewCache kills the API server. Cached reviews are used until their TTL expires, and all other requests are
// refused.
func (a *accessTest) checkReviewCache(t *testing.T, gates []nodeEndpoint) {
	user := "remembered"
	a.apply(roleYAML("remembered", userGrant, "", userSubject(user)))
	known, unknown := a.userCredentials(t, user), a.userCredentials(t, userGrant+"?")
	account, bad, uncached := newCredentials(t, tls.Certificate{}, bearerHeader(a.createToken())), newCredentials(t, tls.Certificate{}, bearerHeader("bad as well")), newCredentials(t, tls.Certificate{}, bearerHeader(a.createToken()))
	checkCached := func(g nodeEndpoint) {
		assert.Equal(t, http.StatusOK, g.statusCode(t, account, http.MethodGet, "/pods"), g.node)
		assert.Equal(t, http.StatusForbidden, g.statusCode(t, account, http.MethodGet, "/configz"), g.node)
		assert.Equal(t, http.StatusOK, g.statusCode(t, known, http.MethodGet, "/configz"), g.node)
		assert.Equal(t, http.StatusForbidden, g.statusCode(t, known, http.MethodGet, "/pods"), g.node)
		assert.Equal(t, http.StatusUnauthorized, g.statusCode(t, bad, http.MethodGet, "/healthz"), g.node)
	}

	began := time.Now()
	for _, g := range gates {
		checkCached(g)
	}

	lastReview := time.Now()
	a.proxy.SetUnavailable(true) // the proxy itself must not respond
	require.NoError(t, a.Kill(controlplane.APIServer))
	for _, g := range gates {
		checkCached(g)
	}
	require.Less(t, time.Since(began), reviewTTL, "all requests are sent within the TTL of reviews")

	var all sync.WaitGroup
	for _, g := range gates {
		all.Go(func() {
			g.checkRefusals(t, uncached, unknown)
			// Without its review a token is unauthenticated, and a request of a known user fails.
			for _, c := range []struct {
				credentials
				path string
				code int
			}{{account, "/pods", http.StatusUnauthorized}, {known, "/configz", http.StatusInternalServerError}} {
				code := http.StatusOK
				for code == http.StatusOK && time.Since(lastReview) < 2*reviewTTL {
					time.Sleep(100 * time.Millisecond)
					code = g.statusCode(t, c.credentials, http.MethodGet, c.path)
				}
				assert.Equal(t, c.code, code, "%s: GET %s after the TTL", g.node, c.path)
				assert.GreaterOrEqual(t, time.Since(began), reviewTTL, "%s: GET %s", g.node, c.path)
			}
		})
	}
	all.Wait()

	require.NoError(t, a.Restart(t.Context(), controlplane.APIServer))
	a.proxy.SetUnavailable(false)
	for _, g := range gates {
		exetest.Eventually(t, timeout, func() error {
			if code := g.statusCode(t, account, http.MethodGet, "/pods"); code != http.StatusOK {
				return fmt.Errorf("%s answers %d", g.node, code)
			}
			return nil
		})
		checkCached(g)
		assert.Equal(t, http.StatusOK, g.statusCode(t, uncached, http.MethodGet, "/pods"), g.node)
	}
}

// checkRefusals sends requests with a token and as a user without cached reviews, while the API server is unavailable.
func (g nodeEndpoint) checkRefusals(t *testing.T, token, user credentials) {
	for _, c := range []struct {
		credentials
		code int
	}{{token, http.StatusUnauthorized}, {user, http.StatusInternalServerError}} {
		began := time.Now()
		assert.Equal(t, c.code, g.statusCode(t, c.credentials, http.MethodGet, "/pods"), g.node)
		took := time.Since(began)
		assert.Less(t, took, 12*time.Second, g.node)
		t.Logf("%s: %d after %v", g.node, c.code, took.Round(10*time.Millisecond))
	}
}

// checkHungReviews makes the API server accept requests without a response.
func (a *accessTest) checkHungReviews(t *testing.T, g nodeEndpoint) {
	token, user := newCredentials(t, tls.Certificate{}, bearerHeader(a.createToken())), a.userCredentials(t, "unreviewed user")
	a.proxy.SetBlackHole(true)
	defer a.proxy.SetBlackHole(false)
	g.checkRefusals(t, token, user)
}

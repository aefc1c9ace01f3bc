// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/internal/certtest"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/kubeconfig"
)

// listDir returns the entries of a directory, links with their targets.
func listDir(t testing.TB, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		name := e.Name()
		if target, err := os.Readlink(filepath.Join(dir, name)); err == nil {
			name += " -> " + strings.TrimPrefix(target, dir+string(filepath.Separator))
		}
		all = append(all, name)
	}
	return all
}

// scene is a cluster with the files of a node.
type scene struct {
	*testing.T
	*certtest.Cluster
	dir string

	mu       sync.Mutex // guards the fields below
	rotated  []*x509.Certificate
	failures []string
}

// runWithCluster runs a test with a cluster in virtual time.
func runWithCluster(t *testing.T, o certtest.Options, f func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster, err := certtest.Start(o)
		require.NoError(t, err)
		defer cluster.Close()
		s := &scene{T: t, Cluster: cluster, dir: t.TempDir()}
		f(s)
	})
}

func (s *scene) path(name string) string { return filepath.Join(s.dir, name) }

func (s *scene) writeFile(name string, data []byte) {
	s.Helper()
	require.NoError(s, os.WriteFile(s.path(name), data, 0o600))
}

func (s *scene) options() cert.ClientOptions {
	return cert.ClientOptions{
		NodeName: "n1", Kubeconfig: s.path("kubelet.conf"), BootstrapKubeconfig: s.path("bootstrap.conf"), Dir: s.path("pki"),
		Dial: s.Dial, Rand: func() float64 { return 0.5 }, Hooks: s.hooks(),
	}
}

func (s *scene) hooks() cert.Hooks {
	return cert.Hooks{
		Rotated: func(_, current *x509.Certificate) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.rotated = append(s.rotated, current)
		},
		Failed: func(err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.failures = append(s.failures, err.Error())
		},
	}
}

func (s *scene) reportedErrors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.failures...)
}

func (s *scene) countRequests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rotated)
}

// runner is a Client or a Serving.
type runner interface {
	Run(ctx context.Context) error
}

// startRunner runs a runner until the returned function is called.
func (s *scene) startRunner(r runner) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		assert.NoError(s, <-done)
	}
}

func (s *scene) newClient() *cert.Client {
	s.Helper()
	client, err := cert.NewClient(s.options())
	require.NoError(s, err)
	return client
}

// requests returns the names of all certificate signing requests.
func (s *scene) requests() (all []*certificatesv1.CertificateSigningRequest) {
	return apiservertest.List[*certificatesv1.CertificateSigningRequest](s.Server)
}

// get requests the health of the API server.
func get(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, certtest.Host+"/api/v1/nodes", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return err
}

// httpClient returns an HTTP client for a config.
func (s *scene) httpClient(config *rest.Config) *http.Client {
	s.Helper()
	client, err := rest.HTTPClientFor(config)
	require.NoError(s, err)
	return client
}

// A node with a bootstrap token requests a certificate and rotates it repeatedly. No request fails, and each uses the current
// certificate.
func TestBootstrapAndRotate(t *testing.T) {
	runWithCluster(t, certtest.Options{TTL: 3 * time.Minute}, func(s *scene) {
		s.writeFile("bootstrap.conf", s.BootstrapKubeconfig())
		client := s.newClient()
		require.Nil(t, client.Current())
		require.FileExists(t, s.path("kubelet.conf"), "kubeconfig is written before the first certificate")
		api := s.httpClient(client.Config())
		defer api.CloseIdleConnections()
		short, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, get(short, api), kubeapi.ErrNoCredentials)
		require.Empty(t, s.Calls(), "no anonymous request is sent")
		early := make(chan error, 1)
		go func() { early <- get(s.Context(), api) }() // waits for the certificate
		synctest.Wait()
		defer s.startRunner(client)()
		require.NoError(t, <-early)

		synctest.Wait()
		time.Sleep(time.Second)
		require.NotNil(t, client.Current())
		s.SetToken("") // the bootstrap token is used once only
		for range 1200 {
			require.NoError(t, get(s.Context(), api))
			time.Sleep(time.Second)
		}
		require.Empty(t, s.reportedErrors())
		assert.Greater(t, s.countRequests(), 8)
		serials := map[string]bool{}
		for _, call := range s.Calls() {
			if call.User == "system:node:n1" {
				serials[call.Serial] = true
			}
		}
		assert.Len(t, serials, s.countRequests())
		for i, r := range s.requests() {
			assert.Regexp(t, "^csr-", r.Name, i)
		}
		assert.Len(t, s.requests(), s.countRequests())
		files := listDir(t, s.path("pki"))
		assert.Len(t, files, s.countRequests()+1, "certificate files are kept, as in the kubelet")

		// Another process continues with the files, without a token.
		next := s.newClient()
		assert.Equal(t, client.Current().Leaf.SerialNumber, next.Current().Leaf.SerialNumber)
		info, err := os.Stat(s.path("kubelet.conf"))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode())
	})
}

// After a rotation, watches are closed after a while, and long requests complete.
func TestConnectionsOfReplacedCertificatesClose(t *testing.T) {
	runWithCluster(t, certtest.Options{TTL: 10 * time.Minute}, func(s *scene) {
		s.writeFile("bootstrap.conf", s.BootstrapKubeconfig())
		client := s.newClient()
		defer s.startRunner(client)()
		time.Sleep(time.Second)
		api := s.httpClient(client.Config())
		defer api.CloseIdleConnections()
		req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, certtest.Host+"/api/v1/nodes?watch=true", nil)
		require.NoError(t, err)
		resp, err := api.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		cut := make(chan time.Time, 1)
		go func() { _, _ = io.Copy(io.Discard, resp.Body); cut <- time.Now() }()

		deadline := client.Status().RotationDeadline
		time.Sleep(time.Until(deadline) - 5*time.Second)
		defer s.Server.Delay("list", "nodes", 10*time.Second)()
		require.NoError(t, get(s.Context(), api), "a request that was started before the rotation completes after it")
		require.Equal(t, 2, s.countRequests())
		end := <-cut
		assert.WithinDuration(t, deadline.Add(15*time.Second), end, 2*time.Second)
	})
}

// An agent whose certificate has expired while it was stopped uses the bootstrap credentials.
func TestClientRecoversFromExpiryWhileStopped(t *testing.T) {
	runWithCluster(t, certtest.Options{}, func(s *scene) {
		s.writeFile("bootstrap.conf", s.BootstrapKubeconfig())
		first := s.newClient()
		stop := s.startRunner(first)
		time.Sleep(time.Second)
		stop()
		require.NotNil(t, first.Current())
		time.Sleep(2 * time.Hour)
		require.Nil(t, first.Current())
		require.ErrorContains(t, kubeconfig.CheckUsable(s.path("kubelet.conf"), time.Now()), "has expired at ")

		second := s.newClient()
		require.Nil(t, second.Current())
		defer s.startRunner(second)()
		time.Sleep(time.Second)
		require.NotNil(t, second.Current())
		last := s.requests()
		assert.Len(t, last, 2)
	})
}

// After certificate and bootstrap token have expired while the API server is unavailable, the agent continues as soon as an
// administrator writes a new kubeconfig.
func TestClientRecoversFromExpiryWhileRunning(t *testing.T) {
	runWithCluster(t, certtest.Options{}, func(s *scene) {
		s.writeFile("bootstrap.conf", s.BootstrapKubeconfig())
		client := s.newClient()
		defer s.startRunner(client)()
		time.Sleep(time.Second)
		require.NotNil(t, client.Current())
		s.SetToken("")
		remove := s.Server.Fail("create", "certificatesigningrequests", http.StatusInternalServerError)
		time.Sleep(2 * time.Hour)
		require.Nil(t, client.Current())
		remove()
		time.Sleep(2 * time.Minute)
		require.Nil(t, client.Current())
		late := make(chan error, 1)
		go func() { late <- get(s.Context(), s.httpClient(client.Config())) }() // waits, as before the first certificate
		failed := s.reportedErrors()
		assert.Contains(t, failed[len(failed)-1], "create certificatesigningrequests: Unauthorized")

		require.NoError(t, os.Remove(s.path("bootstrap.conf")))
		time.Sleep(2 * time.Minute)
		failed = s.reportedErrors()
		assert.Contains(t, failed[len(failed)-1], `the certificate of "system:node:n1" has expired at 2000-01-01T01:00:0`)
		assert.Contains(t, failed[len(failed)-1], "there are no credentials to request one: write some to "+s.path("bootstrap.conf"))
		assert.Less(t, len(failed), 3*3600/32, "at most one request in 32 s")

		s.SetToken("fedcba.9876543210fedcba")
		s.writeFile("bootstrap.conf", s.TokenKubeconfig("fedcba.9876543210fedcba"))
		time.Sleep(40 * time.Second)
		require.NotNil(t, client.Current())
		require.NoError(t, <-late)
		require.NoError(t, get(s.Context(), s.httpClient(client.Config())))
	})
}

// A new certificate in the kubeconfig is used.
func TestClientUsesReplacedKubeconfig(t *testing.T) {
	runWithCluster(t, certtest.Options{}, func(s *scene) {
		certPEM, keyPEM, err := s.CA().ClientCertificate("system:node:n1", time.Now(), time.Now().Add(time.Minute))
		require.NoError(t, err)
		s.writeFile("kubelet.conf", s.Kubeconfig(certPEM, keyPEM))
		o := s.options()
		o.BootstrapKubeconfig = ""
		client, err := cert.NewClient(o)
		require.NoError(t, err)
		s.SetDecide(func(*certificatesv1.CertificateSigningRequest) certtest.Verdict { return certtest.Postpone })
		defer s.startRunner(client)()
		time.Sleep(20 * time.Minute)
		require.Nil(t, client.Current())
		certPEM, keyPEM, err = s.CA().ClientCertificate("system:node:n1", time.Now(), time.Now().Add(time.Hour))
		require.NoError(t, err)
		s.writeFile("kubelet.conf", s.Kubeconfig(certPEM, keyPEM))
		time.Sleep(12 * time.Second)
		require.NotNil(t, client.Current())
		require.NoError(t, get(s.Context(), s.httpClient(client.Config())))
	})
}

// kubeadm writes a kubeconfig with an administrator's certificate for a control plane node. It is stored, and replaced at once.
func TestClientReplacesCertificateOfKubeconfig(t *testing.T) {
	runWithCluster(t, certtest.Options{}, func(s *scene) {
		certPEM, keyPEM, err := s.CA().ClientCertificate("kubernetes-admin", time.Now(), time.Now().Add(time.Hour))
		require.NoError(t, err)
		s.writeFile("kubelet.conf", s.Kubeconfig(certPEM, keyPEM))
		o := s.options()
		o.BootstrapKubeconfig = ""
		client, err := cert.NewClient(o)
		require.NoError(t, err)
		require.Equal(t, "kubernetes-admin", client.Current().Leaf.Subject.CommonName)
		require.Len(t, listDir(t, s.path("pki")), 2)
		defer s.startRunner(client)()
		time.Sleep(time.Second)
		require.Equal(t, "system:node:n1", client.Current().Leaf.Subject.CommonName)
		assert.Equal(t, "kubernetes-admin", s.Calls()[0].User)
	})
}

// A certificate of another node is not used: with bootstrap credentials a new one is requested, without them the reason is
// reported.
func TestCertificateOfAnotherNodeIsReplaced(t *testing.T) {
	runWithCluster(t, certtest.Options{}, func(s *scene) {
		certPEM, keyPEM, err := s.CA().ClientCertificate("system:node:n2", time.Now(), time.Now().Add(time.Hour))
		require.NoError(t, err)
		s.writeFile("kubelet.conf", s.Kubeconfig(certPEM, keyPEM))
		s.writeFile("bootstrap.conf", s.BootstrapKubeconfig())
		client := s.newClient()
		defer s.startRunner(client)()
		time.Sleep(time.Second)
		require.Equal(t, "system:node:n1", client.Current().Leaf.Subject.CommonName)
		assert.Equal(t, "system:bootstrap:abcdef", s.Calls()[0].User)
	})
}

// Each request after a failure has a new key, and is sent after a delay.
func TestFailedRequestsAreReportedAndRetried(t *testing.T) {
	for name, test := range map[string]struct {
		decide certtest.Verdict
		after  func(s *scene) // called after the first second
		wait   time.Duration
		want   string
	}{
		"denied": {decide: certtest.Deny, wait: time.Minute, want: `was denied: "Denied": "by certtest"`},
		"failed": {decide: certtest.Fail, wait: time.Minute, want: `has failed: "SignerValidationFailure": "by certtest"`},
		"deleted": {decide: certtest.Postpone, wait: 3 * time.Second, want: " was deleted", after: func(s *scene) {
			require.NoError(s, s.Server.Delete(s.requests()[0], nil))
		}},
		"not signed": {decide: certtest.Postpone, wait: 15*time.Minute + 3*time.Second, want: "canceled: it was not signed within 15m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			runWithCluster(t, certtest.Options{Decide: func(*certificatesv1.CertificateSigningRequest) certtest.Verdict { return test.decide }}, func(s *scene) {
				s.writeFile("bootstrap.conf", s.BootstrapKubeconfig())
				client := s.newClient()
				defer s.startRunner(client)()
				time.Sleep(time.Second)
				first := s.requests()
				require.Len(t, first, 1)
				if test.after != nil {
					test.after(s)
				}
				s.SetDecide(nil)
				time.Sleep(test.wait + 2*time.Second)
				require.NotEmpty(t, s.reportedErrors())
				assert.Contains(t, s.reportedErrors()[0], test.want)
				require.NotNil(t, client.Current())
				keys := map[string]bool{string(first[0].Spec.Request): true}
				for _, r := range s.requests() {
					keys[string(r.Spec.Request)] = true
				}
				assert.Len(t, keys, 2)
				assert.Equal(t, 1, s.countRequests())
				assert.Zero(t, client.Status().Failures)
			})
		})
	}
}

// The certificate is issued although the watch breaks once a second and the API server is unavailable when the request is signed.
func TestRequestSurvivesBrokenWatch(t *testing.T) {
	runWithCluster(t, certtest.Options{Decide: func(*certificatesv1.CertificateSigningRequest) certtest.Verdict { return certtest.Postpone }}, func(s *scene) {
		s.writeFile("bootstrap.conf", s.BootstrapKubeconfig())
		client := s.newClient()
		defer s.startRunner(client)()
		for range 60 {
			time.Sleep(time.Second)
			s.Server.DisconnectAll()
		}
		require.Len(t, s.requests(), 1)
		s.Server.SetUnavailable(true)
		s.Decide(s.requests()[0].Name, certtest.Issue)
		time.Sleep(time.Minute)
		s.Server.SetUnavailable(false)
		time.Sleep(time.Minute)
		require.NotNil(t, client.Current())
		require.Empty(t, s.reportedErrors())
	})
}

// A certificate that must be rotated at once after its issue is requested once a minute.
func TestShortLivedCertificateIsRotatedInTime(t *testing.T) {
	runWithCluster(t, certtest.Options{TTL: 70 * time.Second}, func(s *scene) {
		s.writeFile("bootstrap.conf", s.BootstrapKubeconfig())
		client := s.newClient()
		defer s.startRunner(client)()
		time.Sleep(time.Second)
		s.SetToken("")
		for range 600 {
			require.NotNil(t, client.Current())
			time.Sleep(time.Second)
		}
		assert.InDelta(t, 10, s.countRequests(), 1)
		assert.Empty(t, s.reportedErrors())
	})
}

// A damaged file is not used, and is replaced.
func TestDamagedCertificateIsReplaced(t *testing.T) {
	runWithCluster(t, certtest.Options{}, func(s *scene) {
		s.writeFile("bootstrap.conf", s.BootstrapKubeconfig())
		require.NoError(t, os.Mkdir(s.path("pki"), 0o755))
		s.writeFile("broken", []byte("incomplete certificate"))
		require.NoError(t, os.Symlink(s.path("broken"), s.path("pki/kubelet-client-current.pem")))
		client := s.newClient()
		defer s.startRunner(client)()
		time.Sleep(time.Second)
		require.NotNil(t, client.Current())
	})
}

// NewClient returns errors that an administrator must fix, with the name of the file.
func TestNewClientRefusesInvalidOptions(t *testing.T) {
	runWithCluster(t, certtest.Options{}, func(s *scene) {
		other, err := certtest.NewAuthority("other")
		require.NoError(t, err)
		certPEM, keyPEM, err := other.ClientCertificate("system:node:n1", time.Now(), time.Now().Add(time.Hour))
		require.NoError(t, err)
		s.writeFile("good.conf", s.Kubeconfig(certPEM, keyPEM))
		s.writeFile("empty.conf", nil)
		s.writeFile("text.conf", []byte("hello: [world"))
		s.writeFile("ca.conf", []byte(strings.Replace(string(s.Kubeconfig(certPEM, keyPEM)), "certificate-authority-data: ", "certificate-authority: none.crt #", 1)))
		for name, test := range map[string]struct {
			change func(o *cert.ClientOptions)
			want   string
		}{
			"no node":                      {func(o *cert.ClientOptions) { o.NodeName = "" }, "client certificate: ClientOptions.NodeName must not be empty"},
			"no path":                      {func(o *cert.ClientOptions) { o.Kubeconfig = "" }, "client certificate: ClientOptions.Kubeconfig must not be empty"},
			"no bootstrap file":            {func(*cert.ClientOptions) {}, "client certificate: bootstrap kubeconfig " + s.path("bootstrap.conf") + ": no such file"},
			"no kubeconfig":                {func(o *cert.ClientOptions) { o.BootstrapKubeconfig = "" }, "client certificate: kubeconfig " + s.path("kubelet.conf") + ": no such file"},
			"empty kubeconfig":             {func(o *cert.ClientOptions) { o.BootstrapKubeconfig, o.Kubeconfig = "", s.path("empty.conf") }, "client certificate: kubeconfig " + s.path("empty.conf") + ": "},
			"a text":                       {func(o *cert.ClientOptions) { o.BootstrapKubeconfig, o.Kubeconfig = "", s.path("text.conf") }, "client certificate: kubeconfig " + s.path("text.conf") + ": "},
			"no CA":                        {func(o *cert.ClientOptions) { o.BootstrapKubeconfig, o.Kubeconfig = "", s.path("ca.conf") }, "client certificate: kubeconfig " + s.path("ca.conf") + ": certificate-authority " + s.path("none.crt") + ": no such file or directory"},
			"kubeconfig path below a file": {func(o *cert.ClientOptions) { o.Kubeconfig = s.path("good.conf/x") }, "client certificate: kubeconfig: stat " + s.path("good.conf/x") + ": not a directory"},
		} {
			o := s.options()
			test.change(&o)
			_, err := cert.NewClient(o)
			require.ErrorContains(t, err, test.want, name)
		}
		client := s.options()
		client.Kubeconfig = s.path("good.conf")
		made, err := cert.NewClient(client)
		require.NoError(t, err, "NewClient does not check the authority: the API server rejects the certificate")
		stop := s.startRunner(made)
		time.Sleep(time.Second)
		stop()
		require.ErrorContains(t, made.Run(s.Context()), "second call of Run")
		assert.Equal(t, []string{"create certificatesigningrequests: Unauthorized"}, s.reportedErrors())
		require.ErrorContains(t, get(s.Context(), s.httpClient(made.Config())), "status 401")
	})
}

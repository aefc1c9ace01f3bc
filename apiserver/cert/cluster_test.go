// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert_test

import (
	"context"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/kubeconfig"
)

const requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// realNode is a node of a real control plane.
type realNode struct {
	*testing.T
	*controlplane.Plane
	name, dir, bootstrap string

	mu       sync.Mutex // guards the fields below
	rotated  int
	failures []string
}

func (n *realNode) options() cert.ClientOptions {
	return cert.ClientOptions{
		NodeName: n.name, Kubeconfig: filepath.Join(n.dir, "kubelet.conf"), BootstrapKubeconfig: n.bootstrap,
		Dir: filepath.Join(n.dir, "pki"), Rand: func() float64 { return 0 }, Hooks: n.hooks(),
	}
}

func (n *realNode) hooks() cert.Hooks {
	return cert.Hooks{
		Rotated: func(_, _ *x509.Certificate) { n.mu.Lock(); defer n.mu.Unlock(); n.rotated++ },
		Failed:  func(err error) { n.mu.Lock(); defer n.mu.Unlock(); n.failures = append(n.failures, err.Error()) },
	}
}

func (n *realNode) count() (rotated int, failures []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rotated, append([]string{}, n.failures...)
}

// run runs a Client or Serving until the returned function is called, or the test ends.
func (n *realNode) run(r runner) (stop func()) {
	ctx, cancel := context.WithCancel(n.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); assert.NoError(n, <-done) })
	n.Cleanup(stop)
	return stop
}

// authenticatedUser returns the user of a config as the API server authenticates it.
func authenticatedUser(ctx context.Context, client *http.Client, config *rest.Config) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/api/v1/services", nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// decideRequests approves or denies the undecided requests of a signer, until the test ends.
func (n *realNode) decideRequests(user string, verdict certificatesv1.RequestConditionType) {
	for {
		var list certificatesv1.CertificateSigningRequestList
		if n.Context().Err() != nil {
			return
		}
		err := n.Admin().Do(n.Context(), http.MethodGet, requestsPath, nil, &list)
		for i := range list.Items {
			r := &list.Items[i]
			if err != nil || r.Spec.Username != user || len(r.Status.Conditions) > 0 {
				continue
			}
			r.APIVersion, r.Kind = "certificates.k8s.io/v1", "CertificateSigningRequest"
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
				Type: verdict, Status: corev1.ConditionTrue, Reason: "Test", Message: "because",
			}}
			require.NoError(n, n.Admin().Do(n.Context(), http.MethodPut, requestsPath+"/"+r.Name+"/approval", r, nil))
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A real control plane issues certificates that are valid for three minutes.
func TestCluster(t *testing.T) {
	if os.Getenv(controlplane.RequiredEnv) != "required" {
		t.Skipf("takes four minutes and needs programs that take long to build: run `make cluster`, which sets %s", controlplane.RequiredEnv)
	}
	plane := controlplane.Start(t, controlplane.Options{
		ControllerManager: true, ControllerManagerArgs: []string{"--cluster-signing-duration=3m"},
	})
	require.NoError(t, plane.AllowBootstrap(t.Context()))
	t.Run("nodes", func(t *testing.T) {
		for name, test := range map[string]func(*realNode){
			"rotates": testRotates, "expired": testExpired, "denied": testDenied, "serves": testServes, "bootstraps": testBootstraps,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				n := &realNode{T: t, Plane: plane, name: name, dir: t.TempDir()}
				token, err := plane.CreateBootstrapToken(t.Context())
				require.NoError(t, err)
				n.bootstrap, err = plane.TokenKubeconfig(token)
				require.NoError(t, err)
				test(n)
			})
		}
	})
}

// A certificate is requested with a token and replaced three times, while no request fails.
func testRotates(n *realNode) {
	client, err := cert.NewClient(n.options())
	require.NoError(n, err)
	n.run(client)
	require.Eventually(n, func() bool { return client.Current() != nil }, time.Minute, 50*time.Millisecond)
	require.NoError(n, os.Remove(n.bootstrap), "remove the bootstrap token, which is used once only")
	config := client.Config()
	api, err := rest.HTTPClientFor(config)
	require.NoError(n, err)
	rotations, calls := 4, 0
	if testing.Short() {
		rotations = 2
	}
	for begin := time.Now(); time.Since(begin) < 6*time.Minute; calls++ {
		code, err := authenticatedUser(n.Context(), api, config)
		require.NoError(n, err)
		require.Equal(n, http.StatusOK, code)
		if rotated, _ := n.count(); rotated == rotations {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	rotated, failures := n.count()
	require.Equal(n, rotations, rotated)
	require.Empty(n, failures)
	n.Logf("%d requests with %d certificates, none failed", calls, rotated)
}

// The certificate expires while the agent is stopped.
func testExpired(n *realNode) {
	if testing.Short() {
		n.Skip("takes three minutes")
	}
	first, err := cert.NewClient(n.options())
	require.NoError(n, err)
	stop := n.run(first)
	require.Eventually(n, func() bool { return first.Current() != nil }, time.Minute, 50*time.Millisecond)
	stop()
	time.Sleep(time.Until(first.Current().Leaf.NotAfter) + 2*time.Second)
	require.Error(n, kubeconfig.CheckUsable(n.options().Kubeconfig, time.Now()))
	second, err := cert.NewClient(n.options())
	require.NoError(n, err)
	require.Nil(n, second.Current())
	n.run(second)
	require.Eventually(n, func() bool { return second.Current() != nil }, time.Minute, 50*time.Millisecond)
}

// An administrator denies a request, and approves the next one a minute later.
func testDenied(n *realNode) {
	require.NoError(n, n.BindClusterRole(n.Context(), "system:node-bootstrapper", "User", "nobody-approves"))
	path, err := n.Kubeconfig("nobody-approves")
	require.NoError(n, err)
	n.bootstrap = path
	client, err := cert.NewClient(n.options())
	require.NoError(n, err)
	n.run(client)
	n.decideRequests("nobody-approves", certificatesv1.CertificateDenied)
	require.Eventually(n, func() bool { _, failures := n.count(); return len(failures) == 1 }, 10*time.Second, 50*time.Millisecond)
	_, failures := n.count()
	require.Contains(n, failures[0], `was denied: "Test": "because"`)
	began := time.Now()
	n.decideRequests("nobody-approves", certificatesv1.CertificateApproved)
	require.GreaterOrEqual(n, time.Since(began), 50*time.Second)
	require.Eventually(n, func() bool { return client.Current() != nil }, 20*time.Second, 50*time.Millisecond)
}

// The test approves a serving certificate, and another one after an address has changed.
func testServes(n *realNode) {
	path, err := n.Kubeconfig("system:node:"+n.name, "system:nodes")
	require.NoError(n, err)
	config, err := cert.LoadKubeconfig(path)
	require.NoError(n, err)
	a := &addresses{}
	a.set("10.0.0.1")
	serving, err := cert.NewServing(config, cert.ServingOptions{
		NodeName: n.name, Addresses: a.get, Dir: filepath.Join(n.dir, "pki"), Hooks: n.hooks(),
	})
	require.NoError(n, err)
	n.run(serving)
	for i, ip := range []string{"10.0.0.1", "10.0.0.2"} {
		a.set(ip)
		n.decideRequests("system:node:"+n.name, certificatesv1.CertificateApproved)
		require.Eventually(n, func() bool { rotated, _ := n.count(); return rotated == i+1 }, 20*time.Second, 50*time.Millisecond)
		pair, err := serving.GetCertificate(nil)
		require.NoError(n, err)
		require.Equal(n, ip, pair.Leaf.IPAddresses[0].String())
	}
	_, failures := n.count()
	require.Empty(n, failures)
}

// Bootstrap without rotation.
func testBootstraps(n *realNode) {
	require.NoError(n, cert.Bootstrap(n.Context(), n.options()))
	require.NoError(n, kubeconfig.CheckUsable(n.options().Kubeconfig, time.Now()))
	config, err := cert.LoadKubeconfig(n.options().Kubeconfig)
	require.NoError(n, err)
	api, err := rest.HTTPClientFor(config)
	require.NoError(n, err)
	code, err := authenticatedUser(n.Context(), api, config)
	require.NoError(n, err)
	require.Equal(n, http.StatusOK, code)
}

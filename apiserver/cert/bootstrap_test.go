// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/internal/certtest"
	"github.com/seed81659283/nodeagent/internal/kubeconfig"
)

// runBootstrap calls Bootstrap with a timeout.
func (s *scene) runBootstrap(d time.Duration) error {
	ctx, cancel := context.WithTimeout(s.Context(), d)
	defer cancel()
	return cert.Bootstrap(ctx, s.options())
}

// An agent without rotation requests a certificate once, and finds it at its next start.
func TestBootstrap(t *testing.T) {
	runWithCluster(t, certtest.Options{}, func(s *scene) {
		s.writeFile("bootstrap.conf", s.BootstrapKubeconfig())
		require.NoError(t, s.runBootstrap(time.Minute))
		require.NoError(t, kubeconfig.CheckUsable(s.path("kubelet.conf"), time.Now()))
		assert.NoFileExists(t, s.path("pki/kubelet-client.key.tmp"))
		config, err := cert.LoadKubeconfig(s.path("kubelet.conf"))
		require.NoError(t, err)
		assert.Equal(t, s.path("pki/kubelet-client-current.pem"), config.CertFile)
		config.CertData, err = os.ReadFile(config.CertFile)
		require.NoError(t, err)
		config.KeyData, config.CertFile, config.KeyFile, config.Dial = config.CertData, "", "", s.Dial // client-go would poll the files forever
		require.NoError(t, get(s.Context(), s.httpClient(config)))
		require.NoError(t, s.runBootstrap(time.Minute))
		require.Len(t, s.requests(), 1, "a second Bootstrap sends no request")

		// The key of an expired certificate is reused.
		before := s.requests()[0]
		time.Sleep(2 * time.Hour)
		require.NoError(t, s.Server.Delete(before, nil))
		require.NoError(t, s.runBootstrap(time.Minute))
		assert.Equal(t, before.Name, s.requests()[0].Name)
	})
}

// Load waits for the first certificate of an agent without rotation. Later calls load the kubeconfig that Bootstrap has written.
func TestLoadBootstrapsAgentWithoutRotation(t *testing.T) {
	runWithCluster(t, certtest.Options{}, func(s *scene) {
		s.writeFile("bootstrap.conf", s.BootstrapKubeconfig())
		for range 2 {
			config, err := cert.Load(s.Context(), s.options())
			require.NoError(t, err)
			assert.Equal(t, s.path("pki/kubelet-client-current.pem"), config.CertFile)
			require.Len(t, s.requests(), 1)
		}
		opts := s.options()
		opts.BootstrapKubeconfig, opts.Kubeconfig = "", s.path("missing.conf")
		_, err := cert.Load(s.Context(), opts)
		require.ErrorIs(t, err, os.ErrNotExist)
	})
}

// An agent that was killed while it waited finds its request by its key.
func TestBootstrapReusesRequestAfterRestart(t *testing.T) {
	leave := func(*certificatesv1.CertificateSigningRequest) certtest.Verdict { return certtest.Postpone }
	runWithCluster(t, certtest.Options{Decide: leave}, func(s *scene) {
		s.writeFile("bootstrap.conf", s.BootstrapKubeconfig())
		require.ErrorIs(t, s.runBootstrap(time.Minute), context.DeadlineExceeded)
		info, err := os.Stat(s.path("pki/kubelet-client.key.tmp"))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode())
		require.ErrorIs(t, s.runBootstrap(time.Minute), context.DeadlineExceeded)
		require.Len(t, s.requests(), 1)
		assert.True(t, strings.HasPrefix(s.requests()[0].Name, "node-csr-"))
		s.Decide(s.requests()[0].Name, certtest.Issue)
		require.NoError(t, s.runBootstrap(time.Minute))
		require.Len(t, s.requests(), 1)
	})
}

// Bootstrap continues while the API server is unavailable, does not authenticate the token, or denies the request. After a denial
// it uses another key.
func TestBootstrapRetriesUntilApproved(t *testing.T) {
	deny := func(*certificatesv1.CertificateSigningRequest) certtest.Verdict { return certtest.Deny }
	runWithCluster(t, certtest.Options{Decide: deny}, func(s *scene) {
		s.writeFile("bootstrap.conf", s.TokenKubeconfig("wrong0.0000000000000000"))
		done := make(chan error, 1)
		go func() { done <- s.runBootstrap(time.Hour) }()
		time.Sleep(time.Minute)
		require.Empty(t, s.requests())
		s.writeFile("bootstrap.conf", s.BootstrapKubeconfig())
		remove := s.Server.Fail("create", "certificatesigningrequests", http.StatusServiceUnavailable)
		time.Sleep(time.Minute)
		remove()
		time.Sleep(time.Minute)
		require.Len(t, s.requests(), 1)
		s.SetDecide(nil)
		require.NoError(t, <-done)
		require.Len(t, s.requests(), 2)
		failed := strings.Join(s.reportedErrors(), "\n")
		assert.Contains(t, failed, "Unauthorized")
		assert.Contains(t, failed, "was denied")
		assert.NotContains(t, failed, "0000000000000000", "errors contain no token")
	})
}

// Invalid files are reported.
func TestBootstrapReportsInvalidInput(t *testing.T) {
	runWithCluster(t, certtest.Options{}, func(s *scene) {
		o := s.options()
		o.NodeName = ""
		require.ErrorContains(t, cert.Bootstrap(s.Context(), o), "bootstrap: ClientOptions.NodeName must not be empty")
		require.ErrorContains(t, s.runBootstrap(time.Second), "bootstrap kubeconfig "+s.path("bootstrap.conf")+": no such file")
		s.writeFile("bootstrap.conf", s.BootstrapKubeconfig())
		require.NoError(t, os.Mkdir(s.path("pki"), 0o755))
		s.writeFile("pki/kubelet-client.key.tmp", []byte("incomplete key"))
		require.ErrorContains(t, s.runBootstrap(time.Second), "read key "+s.path("pki/kubelet-client.key.tmp")+": it has no private key")
		o = s.options()
		o.BootstrapKubeconfig = ""
		require.ErrorContains(t, cert.Bootstrap(s.Context(), o), "bootstrap: kubeconfig "+s.path("kubelet.conf")+": no such file")
	})
}

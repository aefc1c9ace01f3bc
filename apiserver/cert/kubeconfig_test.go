// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/apiserver/cert"
)

const whole = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://10.0.0.1:6443", certificate-authority: ca.crt}}]
users: [{name: u, user: {client-certificate: client.crt, client-key: client.key}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// write writes files into a directory and returns the path of the kubeconfig.
func write(t *testing.T, text string, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	path := filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestLoadKubeconfigRefuses(t *testing.T) {
	leaf, key := certificate(t, "system:node:n", []string{"system:nodes"}, now, now.Add(time.Hour))
	files := map[string][]byte{"ca.crt": leaf, "client.crt": leaf, "client.key": key}
	config, err := cert.LoadKubeconfig(write(t, whole, files))
	require.NoError(t, err)
	assert.Equal(t, "https://10.0.0.1:6443", config.Host)
	assert.True(t, filepath.IsAbs(config.CertFile))

	for want, change := range map[string]func(string) string{
		"current-context: required":                    func(s string) string { return strings.Replace(s, "current-context: x\n", "", 1) },
		`current-context: there is no context "other"`: func(s string) string { return strings.Replace(s, "current-context: x", "current-context: other", 1) },
		`contexts[x].cluster: there is no cluster "d"`: func(s string) string { return strings.Replace(s, "cluster: c,", "cluster: d,", 1) },
		`contexts[x].user: there is no user "v"`:       func(s string) string { return strings.Replace(s, "user: u}", "user: v}", 1) },
		"clusters[c].server: required":                 func(s string) string { return strings.Replace(s, `server: "https://10.0.0.1:6443", `, "", 1) },
		"it is no kubeconfig":                          func(string) string { return "apiVersion: v1\nkind: Pod\n" },
		"it is too large: more than 1048576 bytes":     func(s string) string { return s + strings.Repeat("#", 1<<20) },
	} {
		path := write(t, change(whole), files)
		_, err := cert.LoadKubeconfig(path)
		require.ErrorContains(t, err, want)
		assert.Contains(t, err.Error(), "kubeconfig "+path+": ")
		assert.NotContains(t, err.Error(), "\n")
	}
	_, err = cert.LoadKubeconfig("")
	require.ErrorContains(t, err, "the path of the file is empty")
	missing := filepath.Join(t.TempDir(), "none")
	_, err = cert.LoadKubeconfig(missing)
	require.EqualError(t, err, "kubeconfig "+missing+": no such file or directory")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = cert.LoadKubeconfig(t.TempDir())
	assert.ErrorContains(t, err, "it is no regular file")
	path := write(t, whole, map[string][]byte{"ca.crt": leaf, "client.key": key})
	_, err = cert.LoadKubeconfig(path)
	assert.ErrorContains(t, err, "client-certificate "+filepath.Join(filepath.Dir(path), "client.crt")+": no such file or directory")
}

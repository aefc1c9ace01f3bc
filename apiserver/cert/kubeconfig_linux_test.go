// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/internal/kubeconfig"
)

// Loading a kubeconfig, or a file that it names, never blocks and reads at most 1 MiB of each.
func TestLoadKubeconfigRefusesHostileFiles(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, syscall.Mkfifo(path("pipe"), 0o600))
	require.NoError(t, os.WriteFile(path("huge"), nil, 0o600))
	require.NoError(t, os.Truncate(path("huge"), 1<<40))
	text := func(cluster, user string) string {
		return "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n" +
			"clusters: [{name: k, cluster: {server: 'https://h', " + cluster + "}}]\nusers: [{name: u, user: {" + user + "}}]\n"
	}
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+",", 9) + "]\n"
	}
	for name, test := range map[string]struct{ text, want string }{
		"good":                  {text("", "token: t"), ""},
		"pipe as CA":            {text("certificate-authority: pipe", ""), "certificate-authority " + path("pipe") + ": it is no regular file"},
		"huge certificate file": {text("", "client-certificate: huge"), "client-certificate " + path("huge") + ": it is too large: it has 1099511627776 bytes, more than 1048576"},
		"directory as key":      {text("", "client-certificate: file, client-key: ."), "client-key " + dir + ": it is no regular file"},
		"pipe as tokenFile":     {text("", "tokenFile: pipe"), "tokenFile " + path("pipe") + ": it is no regular file"},
		"a bomb":                {bomb, "values"},
		"too large":             {strings.Repeat("#", 1<<20+1), "it is too large"},
	} {
		require.NoError(t, os.WriteFile(path("file"), []byte(test.text), 0o600))
		_, err := cert.LoadKubeconfig(path("file"))
		if test.want == "" {
			require.NoError(t, err, name)
			require.ErrorContains(t, kubeconfig.CheckUsable(path("file"), time.Now()), "kubeconfig "+path("file")+": it has no client certificate")
			continue
		}
		require.ErrorContains(t, err, "kubeconfig", name)
		require.ErrorContains(t, err, test.want, name)
		require.ErrorContains(t, err, path("file"), name)
	}
	_, err := cert.LoadKubeconfig(path("pipe"))
	require.ErrorContains(t, err, "kubeconfig "+path("pipe")+": it is no regular file")
}

// Any text is loaded or refused in bounded time. The error is one short line.
func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n" +
		"clusters: [{name: k, cluster: {server: 'https://h'}}]\nusers: [{name: u, user: {client-certificate-data: YQ==}}]\n"))
	f.Add([]byte("{}"))
	f.Add([]byte(whole))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte(strings.Replace(whole, "current-context: x", `current-context: "`+strings.Repeat(`x\n`, 2000)+`"`, 1)))
	f.Add([]byte(strings.Replace(whole, "ca.crt", `"`+strings.Repeat(`x\n`, 2000)+`"`, 1)))
	f.Add([]byte("clusters: null\nusers: [null]\ncontexts: [{}]\ncurrent-context: ''\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(dir, "config")
		require.NoError(t, os.WriteFile(path, text, 0o600))
		config, err := cert.LoadKubeconfig(path)
		if (config == nil) == (err == nil) {
			t.Fatal("want either a config or an error")
		}
		if err == nil {
			require.NotEmpty(t, config.Host)
		} else {
			require.Contains(t, err.Error(), path)
			require.Less(t, len(err.Error()), 1000)
			require.NotContains(t, err.Error(), "\n")
		}
		require.Error(t, kubeconfig.CheckUsable(path, time.Now()), "no random text has a certificate with its key")
	})
}

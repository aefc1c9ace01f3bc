// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/images/credential"
)

// script is the plugin. It appends its request to the log and acts according to its first argument.
const script = `#!/bin/sh
cat >>"$PLUGIN_LOG"
case $1 in
answer) sleep "${3:-0}"; printf %s "$2" ;;
fail) echo "no way in, with $(tail -n 1 "$PLUGIN_LOG")" >&2; exit 3 ;;
flood) while echo ` + password + `; do :; done ;;
hang) sleep 1000 & echo "child $!" >>"$PLUGIN_LOG"; wait ;; # with the output open
detach) setsid sleep 1000 & echo "child $!" >>"$PLUGIN_LOG"; printf %s "$2" ;;
leave) sleep 1000 & echo "child $!" >>"$PLUGIN_LOG"; printf %s "$2" ;;
esac
`

// pluginDir is a directory with one plugin in it.
type pluginDir struct {
	t        *testing.T
	log      string
	spec     credential.PluginSpec
	accounts credential.Accounts
	timeout  time.Duration
}

// newPluginDir returns a pluginDir whose plugin gets these arguments.
func newPluginDir(t *testing.T, args ...string) *pluginDir {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plug"), []byte(script), 0o700))
	s := &pluginDir{t: t, log: filepath.Join(dir, "log")}
	never := credential.Duration(0)
	s.spec = credential.PluginSpec{
		Name: "plug", MatchImages: []string{"r.io", "*.r.io/team"}, DefaultCacheDuration: &never,
		APIVersion: "credentialprovider.kubelet.k8s.io/v1", Args: args,
		Env: []credential.EnvVar{{Name: "PLUGIN_LOG", Value: s.log}},
	}
	return s
}

func (s *pluginDir) newPlugins() *credential.Plugins {
	s.t.Helper()
	p, err := credential.NewPlugins(credential.PluginConfig{Providers: []credential.PluginSpec{s.spec}},
		credential.PluginOptions{BinDir: filepath.Dir(s.log), Accounts: s.accounts, Timeout: s.timeout})
	require.NoError(s.t, err)
	return p
}

// readRequests returns the requests that the plugin has received.
func (s *pluginDir) readRequests() []string {
	s.t.Helper()
	data, err := os.ReadFile(s.log)
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(s.t, err)
	}
	lines := slices.Collect(strings.Lines(string(data)))
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}

// newResponse is a response with one login.
func newResponse(cacheKey, cacheDuration, registry, password string) string {
	if cacheDuration != "" {
		cacheDuration = fmt.Sprintf(`"cacheDuration":%q,`, cacheDuration)
	}
	return fmt.Sprintf(`{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1",`+
		`"cacheKeyType":%q,%s"auth":{%q:{"username":"u","password":%q}}}`, cacheKey, cacheDuration, registry, password)
}

func TestPluginCalledForMatchingImage(t *testing.T) {
	s := newPluginDir(t, "answer", newResponse("Image", "", "r.io", password))
	p := s.newPlugins()
	pod := credential.Pod{Namespace: "ns", Name: "p", ServiceAccount: "sa"}

	found, err := p.Credentials(t.Context(), "r.io/x", pod)
	require.NoError(t, err)
	require.Equal(t, []credential.Credential{{Username: "u", Password: password}}, found)
	assert.Equal(t, []string{
		`{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"r.io/x"}`,
	}, s.readRequests())

	found, err = p.Credentials(t.Context(), "s.io/x", pod)
	require.NoError(t, err)
	assert.Empty(t, found)
	assert.Len(t, s.readRequests(), 1, "the plugin is not called for a registry outside matchImages")

	found, err = p.Credentials(t.Context(), "a.r.io/team/x", pod)
	require.NoError(t, err)
	assert.Empty(t, found, "a login for another registry is not returned")
	assert.Len(t, s.readRequests(), 2)
}

func TestPluginResponseIsCached(t *testing.T) {
	for _, tt := range []struct {
		name          string
		key, duration string
		standard      time.Duration
		images        []string
		runs          int
	}{
		{"not cached without a duration", "Image", "", 0, []string{"r.io/x", "r.io/x"}, 2},
		{"not cached if the response has duration zero", "Image", "0s", time.Hour, []string{"r.io/x", "r.io/x"}, 2},
		{"cached for the default duration", "Image", "", time.Hour, []string{"r.io/x", "r.io/x"}, 1},
		{"cached for the duration of the response", "Image", "1h", 0, []string{"r.io/x", "r.io/x"}, 1},
		{"not cached after the duration of the response", "Image", "1ns", time.Hour, []string{"r.io/x", "r.io/x"}, 2},
		{"cached per image", "Image", "1h", 0, []string{"r.io/x", "r.io/y", "r.io/x"}, 2},
		{"cached per registry", "Registry", "1h", 0, []string{"r.io/x", "r.io/y", "a.r.io/team/x"}, 2},
		{"cached for all images", "Global", "1h", 0, []string{"r.io/x", "r.io/y", "a.r.io/team/x"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newPluginDir(t, "answer", newResponse(tt.key, tt.duration, "r.io", password))
			s.spec.DefaultCacheDuration = (*credential.Duration)(&tt.standard)
			p := s.newPlugins()
			for _, image := range tt.images {
				found, err := p.Credentials(t.Context(), image, credential.Pod{})
				require.NoError(t, err)
				assert.Equal(t, strings.HasPrefix(image, "r.io/"), len(found) == 1)
			}
			assert.Len(t, s.readRequests(), tt.runs)
		})
	}
}

func TestConcurrentLookupsCallPluginOnce(t *testing.T) {
	s := newPluginDir(t, "answer", newResponse("Image", "", "r.io", password), "0.3")
	p := s.newPlugins()
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			found, err := p.Credentials(t.Context(), "r.io/x", credential.Pod{})
			assert.NoError(t, err)
			assert.Len(t, found, 1)
		})
	}
	wg.Wait()
	assert.Len(t, s.readRequests(), 1)
}

// A failing plugin returns no credentials, and its error does not contain the password.
func TestFailingPluginReturnsNoCredentials(t *testing.T) {
	good := newResponse("Image", "", "r.io", password)
	for _, tt := range []struct {
		name, want string
		args       []string
	}{
		{"non-zero exit code", `exit status 3: "no way in, with`, []string{"fail"}},
		{"empty output", "no CredentialProviderResponse", []string{"answer", ""}},
		{"output that is not JSON", "no CredentialProviderResponse", []string{"answer", password}},
		{"unknown field in the response", "no CredentialProviderResponse", []string{"answer", strings.Replace(good, `"auth"`, `"`+password+`":1,"auth"`, 1)}},
		{"response of another kind", "kind is not", []string{"answer", strings.Replace(good, "Response", password, 1)}},
		{"response of another API version", "apiVersion is not credentialprovider.kubelet.k8s.io/v1", []string{"answer", strings.Replace(good, "/v1", "/v1beta1", 1)}},
		{"response without valid cache key", "cacheKeyType", []string{"answer", strings.Replace(good, "Image", password, 1)}},
		{"response with invalid duration", "no CredentialProviderResponse", []string{"answer", newResponse("Image", password, "r.io", "p")}},
		{"endless output", "the answer is longer than 1048576 bytes", []string{"flood"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newPluginDir(t, tt.args...)
			found, err := s.newPlugins().Credentials(t.Context(), "r.io/x", credential.Pod{})
			require.Error(t, err)
			assert.Contains(t, err.Error(), "credential provider plug for r.io/x: ")
			assert.Contains(t, err.Error(), tt.want)
			assert.NotContains(t, err.Error(), password)
			assert.Empty(t, found)
		})
	}
}

// The other plugins are called too, and their credentials are merged.
func TestOtherPluginsCalledBesideFailingOne(t *testing.T) {
	s := newPluginDir(t)
	dir := filepath.Dir(s.log)
	var config credential.PluginConfig
	for name, args := range map[string][]string{
		"a-any":  {"answer", newResponse("Image", "", "r.io", "any")},
		"b-fail": {"fail"},
		"c-team": {"answer", newResponse("Image", "", "r.io/team", "team")},
	} {
		require.NoError(t, os.Symlink(filepath.Join(dir, "plug"), filepath.Join(dir, name)))
		spec := s.spec
		spec.Name, spec.Args = name, args
		config.Providers = append(config.Providers, spec)
	}
	p, err := credential.NewPlugins(config, credential.PluginOptions{BinDir: dir})
	require.NoError(t, err)
	found, err := p.Credentials(t.Context(), "r.io/team/x", credential.Pod{})
	require.ErrorContains(t, err, "b-fail")
	require.Len(t, found, 2)
	assert.Equal(t, []string{"team", "any"}, []string{found[0].Password, found[1].Password})
}

// accounts is an API server with one service account.
type accounts struct {
	annotations map[string]string
	token       func(credential.TokenRequest) (string, error)
}

func (a accounts) ServiceAccount(_ context.Context, _, name string) (credential.ServiceAccount, error) {
	if name != "sa" {
		return credential.ServiceAccount{}, errors.New("not found")
	}
	return credential.ServiceAccount{UID: "sa-uid", Annotations: a.annotations}, nil
}

func (a accounts) Token(_ context.Context, r credential.TokenRequest) (string, error) {
	return a.token(r)
}

// slowAccounts is an API server that does not respond.
type slowAccounts struct{ accounts }

func (slowAccounts) Token(ctx context.Context, _ credential.TokenRequest) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// A token request to an API server that does not respond ends after the timeout.
func TestTokenRequestTimesOut(t *testing.T) {
	s := newPluginDir(t, "answer", newResponse("Image", "", "r.io", password))
	yes := true
	s.spec.TokenAttributes = &credential.TokenAttributes{
		ServiceAccountTokenAudience: "a", CacheType: credential.CacheToken, RequireServiceAccount: &yes,
	}
	s.accounts, s.timeout = slowAccounts{}, 50*time.Millisecond
	_, err := s.newPlugins().Credentials(t.Context(), "r.io/x", credential.Pod{Namespace: "ns", ServiceAccount: "sa"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "token of service account ns/sa")
}

func TestPluginWithToken(t *testing.T) {
	yes, no := true, false
	token := "t0ken-for-"
	account := credential.Object{UID: "sa-uid", Namespace: "ns", Name: "sa"}
	for _, tt := range []struct {
		name       string
		attributes credential.TokenAttributes
		password   string // in the response of the plugin
		accounts   []string
		runs       int
		request    string // end of the first request
		err        string
	}{
		{
			"request contains the annotations", credential.TokenAttributes{
				RequireServiceAccount: &yes, CacheType: credential.CacheServiceAccount,
				RequiredServiceAccountAnnotationKeys: []string{"role"}, OptionalServiceAccountAnnotationKeys: []string{"zone", "none"},
			}, "p", []string{"sa"}, 1, `"serviceAccountToken":"t0ken-for-p1","serviceAccountAnnotations":{"role":"r","zone":"z"}}`, "",
		},
		{
			"cached per service account",
			credential.TokenAttributes{RequireServiceAccount: &yes, CacheType: credential.CacheServiceAccount},
			"p",
			[]string{"sa", "sa"},
			1, `"serviceAccountToken":"t0ken-for-p1"}`, "",
		},
		{
			"cached per token",
			credential.TokenAttributes{RequireServiceAccount: &yes, CacheType: credential.CacheToken},
			token + "p1",
			[]string{"sa", "sa"},
			2, `"serviceAccountToken":"t0ken-for-p1"}`, "",
		},
		{
			"token as password requires cache type Token",
			credential.TokenAttributes{RequireServiceAccount: &yes, CacheType: credential.CacheServiceAccount},
			token + "p1",
			[]string{"sa"},
			1, "", "cacheType must be Token",
		},
		{
			"pod without required service account",
			credential.TokenAttributes{RequireServiceAccount: &yes, CacheType: credential.CacheToken},
			"p",
			[]string{""},
			0, "", "",
		},
		{
			"pod without optional service account",
			credential.TokenAttributes{RequireServiceAccount: &no, CacheType: credential.CacheToken},
			"p",
			[]string{""},
			1, `"image":"r.io/x"}`, "",
		},
		{
			"service account without required annotation", credential.TokenAttributes{
				RequireServiceAccount: &yes, CacheType: credential.CacheToken, RequiredServiceAccountAnnotationKeys: []string{"missing"},
			}, "p", []string{"sa"}, 0, "", "",
		},
		{
			"missing service account",
			credential.TokenAttributes{RequireServiceAccount: &yes, CacheType: credential.CacheToken},
			"p",
			[]string{"other"},
			0, "", "service account ns/other: not found",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newPluginDir(t, "answer", newResponse("Global", "1h", "r.io", tt.password))
			tt.attributes.ServiceAccountTokenAudience = "r"
			s.spec.TokenAttributes = &tt.attributes
			s.accounts = accounts{
				annotations: map[string]string{"role": "r", "zone": "z", "other": "o"},
				token: func(r credential.TokenRequest) (string, error) {
					assert.Equal(t, account, r.Account)
					assert.Equal(t, "r", r.Audience)
					return token + r.Pod.Name, nil
				},
			}
			p := s.newPlugins()
			for i, name := range tt.accounts {
				found, err := p.Credentials(t.Context(), "r.io/x", credential.Pod{Namespace: "ns", Name: fmt.Sprintf("p%d", i+1), ServiceAccount: name})
				if tt.err != "" {
					require.ErrorContains(t, err, tt.err)
					assert.NotContains(t, err.Error(), token)
					assert.Empty(t, found)
					continue
				}
				require.NoError(t, err)
				if tt.runs == 0 {
					assert.Empty(t, found)
					continue
				}
				require.Len(t, found, 1)
				want := credential.Source{}
				if name != "" {
					want = credential.Source{Kind: credential.FromServiceAccount, Object: account}
				}
				assert.Equal(t, want, found[0].Source)
			}
			require.Len(t, s.readRequests(), tt.runs)
			if tt.request != "" {
				assert.True(t, strings.HasSuffix(s.readRequests()[0], tt.request), s.readRequests()[0])
			}
		})
	}
}

// The error contains the standard error of the plugin, but not the token.
func TestPluginErrorHidesToken(t *testing.T) {
	yes := true
	s := newPluginDir(t, "fail")
	s.spec.TokenAttributes = &credential.TokenAttributes{
		ServiceAccountTokenAudience: "r", RequireServiceAccount: &yes, CacheType: credential.CacheToken,
	}
	s.accounts = accounts{token: func(credential.TokenRequest) (string, error) { return "t0ken", nil }}
	_, err := s.newPlugins().Credentials(t.Context(), "r.io/x", credential.Pod{Namespace: "ns", Name: "p", ServiceAccount: "sa"})
	require.ErrorContains(t, err, "no way in")
	assert.NotContains(t, err.Error(), "t0ken")
}

func TestNewPluginsRefusesInvalidConfig(t *testing.T) {
	dir := t.TempDir()
	_, err := credential.NewPlugins(credential.PluginConfig{}, credential.PluginOptions{BinDir: dir})
	require.ErrorContains(t, err, "providers: there must be one")

	s := newPluginDir(t)
	_, err = credential.NewPlugins(credential.PluginConfig{Providers: []credential.PluginSpec{s.spec}}, credential.PluginOptions{BinDir: dir})
	require.ErrorIs(t, err, os.ErrNotExist)

	yes := true
	s.spec.TokenAttributes = &credential.TokenAttributes{
		ServiceAccountTokenAudience: "r", RequireServiceAccount: &yes, CacheType: credential.CacheToken,
	}
	_, err = credential.NewPlugins(credential.PluginConfig{Providers: []credential.PluginSpec{s.spec}},
		credential.PluginOptions{BinDir: filepath.Dir(s.log)})
	require.ErrorContains(t, err, `provider "plug": tokenAttributes: tokens need an API server`)
}

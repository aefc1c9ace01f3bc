// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/images/credential"
)

func ExampleKeyring() {
	var ring credential.Keyring
	err := ring.AddSecret(credential.Secret{
		Object: credential.Object{Namespace: "default", Name: "regcred"},
		Data:   []byte(`{"auths":{"ghcr.io":{"username":"any","password":"p"},"ghcr.io/team":{"username":"team","password":"q"}}}`),
	})
	for _, c := range ring.Lookup("ghcr.io/team/app") {
		fmt.Println(c, c.Source.Object.Name)
	}
	fmt.Println(err)
	// Output:
	// credential of team regcred
	// credential of any regcred
	// <nil>
}

// A program provides the credentials of a node from the docker configuration of its user.
func ExampleProviderFunc() {
	config, err := credential.ParseConfig([]byte(`{"auths":{"ghcr.io":{"username":"any","password":"p"}}}`), credential.DockerConfigJSON)
	if err != nil {
		panic(err)
	}
	var node credential.Provider = credential.ProviderFunc(func(_ context.Context, repository string, _ credential.Pod) ([]credential.Credential, error) {
		var ring credential.Keyring
		err := ring.Add(config, credential.Source{})
		return ring.Lookup(repository), err
	})
	found, err := node.Credentials(context.Background(), "ghcr.io/team/app", credential.Pod{})
	fmt.Println(found[0].Auth().Username, len(found[0].Hash()), err)
	// Output: any 64 <nil>
}

// lookupUsers returns the names of the credentials that a keyring with these keys has for repository. The user name of each credential
// equals its key.
func lookupUsers(t *testing.T, repository string, keys ...string) (names []string) {
	t.Helper()
	config := credential.Config{}
	for _, k := range keys {
		config[k] = credential.Login{Username: k}
	}
	var ring credential.Keyring
	require.NoError(t, ring.Add(config, credential.Source{}))
	for _, c := range ring.Lookup(repository) {
		names = append(names, c.Username)
	}
	return names
}

func TestLookup(t *testing.T) {
	for _, tt := range []struct {
		name, repository string
		keys, want       []string
	}{
		{"key equal to the host", "r.io/x", []string{"r.io", "s.io"}, []string{"r.io"}},
		{"longer path before shorter path", "r.io/a/b", []string{"r.io", "r.io/a", "r.io/a/b", "r.io/c"}, []string{"r.io/a/b", "r.io/a", "r.io"}},
		{"path of a key may end within an element", "r.io/teams", []string{"r.io/team"}, []string{"r.io/team"}},
		{"glob matches one label", "a.b.r.io/x", []string{"*.r.io", "*.*.r.io", "a*.b.r.io"}, []string{"a*.b.r.io", "*.*.r.io"}},
		{"key needs all labels of the host", "a.b.c/x", []string{"a.b", "*.*", "a.b.c.d", "*.*.*"}, []string{"*.*.*"}},
		{"glob in the path does not match", "r.io/team/x", []string{"r.io/*"}, nil},
		{"names before globs", "a.r.io/x", []string{"*.r.io", "a.r.io"}, []string{"a.r.io", "*.r.io"}},
		{"key with port", "r.io:5000/x", []string{"r.io", "r.io:5000", "r.io:443", "*.io:5000"}, []string{"r.io:5000", "*.io:5000"}},
		{"key with port does not match host without port", "r.io/x", []string{"r.io:443"}, nil},
		{"IPv6", "[fe80::1]:5000/x", []string{"[fe80::1]:5000"}, []string{"[fe80::1]:5000"}},
		{"keys with scheme", "r.io/x", []string{"https://r.io", "http://r.io/x"}, []string{"http://r.io/x", "https://r.io"}},
		{"keys with API version", "r.io/x", []string{"https://r.io/v1/", "r.io/v2/x", "r.io/v2"}, []string{"r.io/v2/x", "https://r.io/v1/"}},
		{"Docker Hub by the key of docker login", "docker.io/library/x", []string{"https://index.docker.io/v1/"}, []string{"https://index.docker.io/v1/"}},
		{"Docker Hub by docker.io before index.docker.io", "docker.io/library/x", []string{"https://index.docker.io/v1/", "docker.io"}, []string{"docker.io"}},
		{"key of Docker Hub does not match other registries", "r.io/x", []string{"https://index.docker.io/v1/"}, nil},
		{"key of Docker Hub with path does not match", "docker.io/library/x", []string{"index.docker.io/library"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, lookupUsers(t, tt.repository, tt.keys...))
		})
	}
}

// Two secrets for one registry are both returned, in their order, because one of them may be outdated.
func TestLookupKeepsOrderOfSecrets(t *testing.T) {
	var ring credential.Keyring
	for _, name := range []string{"old", "new", "unrelated"} {
		host := "r.io"
		if name == "unrelated" {
			host = "s.io"
		}
		require.NoError(t, ring.AddSecret(credential.Secret{
			Object: credential.Object{UID: "u-" + name, Namespace: "ns", Name: name}, Format: credential.Dockercfg,
			Data: fmt.Appendf(nil, `{"https://%s/v1/":{"username":"u","password":%q,"email":"e"}}`, host, name),
		}))
	}
	found := ring.Lookup("r.io/x")
	require.Len(t, found, 2)
	assert.Equal(t, credential.Credential{
		Username: "u", Password: "old", Email: "e",
		Source: credential.Source{Kind: credential.FromSecret, Object: credential.Object{UID: "u-old", Namespace: "ns", Name: "old"}},
	}, found[0])
	assert.Equal(t, "new", found[1].Password)
	assert.Equal(t, "u", found[1].Auth().Username)
	assert.Equal(t, "new", found[1].Auth().Password)
}

// The hash equals that of the kubelet: SHA-256 of the JSON of a docker AuthConfig. Otherwise records of the kubelet would
// not match.
func TestHashEqualsKubelet(t *testing.T) {
	sum := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	for text, c := range map[string]credential.Credential{
		`{}`:                              {},
		`{"username":"u","password":"p"}`: {Username: "u", Password: "p", Source: credential.Source{Kind: credential.FromSecret}},
		`{"username":"u","password":"p\u0026\u003c","email":"e"}`: {Username: "u", Password: "p&<", Email: "e"},
	} {
		assert.Equal(t, sum(text), c.Hash(), text)
	}
}

func TestParseConfigAuth(t *testing.T) {
	for name, auth := range map[string]string{
		"padded":     base64.StdEncoding.EncodeToString([]byte("user:pa:ss")),
		"not padded": base64.RawStdEncoding.EncodeToString([]byte("user:pa:ss")),
	} {
		t.Run(name, func(t *testing.T) {
			config, err := credential.ParseConfig(fmt.Appendf(nil,
				`{"auths":{"r.io":{"username":"other","password":"other","auth":%q}},"HttpHeaders":{"a":"b"},"credsStore":"x"}`, auth),
				credential.DockerConfigJSON)
			require.NoError(t, err)
			assert.Equal(t, "user", config["r.io"].Username)
			assert.Equal(t, "pa:ss", config["r.io"].Password)
		})
	}
}

const password = "tops3cr3t"

// printAll returns v in every printed form that could leak a password.
func printAll(v any) string {
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "v", v)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "v", v)
	data, _ := json.Marshal(v)
	return fmt.Sprintf("%v %+v %#v %s %s %s", v, v, v, v, data, log.String())
}

func TestPrintedValuesHideSecrets(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("user:" + password))
	data := fmt.Appendf(nil, `{"auths":{"r.io":{"auth":%q}}}`, auth)
	secret := credential.Secret{Object: credential.Object{Namespace: "ns", Name: "s"}, Data: data}
	ring := &credential.Keyring{}
	require.NoError(t, ring.AddSecret(secret))
	found := ring.Lookup("r.io/x")
	require.Equal(t, password, found[0].Password)
	config, err := credential.ParseConfig(data, credential.DockerConfigJSON)
	require.NoError(t, err)

	bytes := strings.Trim(fmt.Sprintf("%d", []byte(password)), "[]")
	for _, v := range []any{
		found, found[0], &found[0],
		struct{ C credential.Credential }{found[0]},
		config, secret,
		[]credential.Secret{secret},
		ring,
	} {
		text := printAll(v)
		for _, hidden := range []string{password, auth, base64.StdEncoding.EncodeToString(data), bytes} {
			assert.NotContains(t, text, hidden, "%T", v)
		}
	}
}

// Errors name the invalid part of a secret, but do not quote it.
func TestErrorsHideSecrets(t *testing.T) {
	encode := base64.StdEncoding.EncodeToString
	for name, data := range map[string]string{
		"not JSON: not JSON, at byte 2":                                            `{` + password,
		"wrong type: not of the right type":                                        `{"auths":{"r.io":{"username":"` + password + `","password":["` + password + `"]}}}`,
		"not base64: auth: not base64":                                             `{"auths":{"r.io":{"auth":"!` + password + `"}}}`,
		"no colon: auth: not the base64 of a user name, a colon":                   `{"auths":{"r.io":{"auth":"` + encode([]byte(password)) + `"}}}`,
		"invalid key: auths: key 1 in alphabetical order: not a registry":          `{"auths":{"https://u:` + password + `@r.io:x%":{"password":"p"},"s.io":{}}}`,
		"string at the top level: not of the right type":                           `"` + password + `"`,
		"string in place of an entry: docker configuration: not of the right type": `{"auths":{"r.io":"` + password + `"}}`,
		"truncated: docker configuration: not JSON, at byte":                       `{"auths":{"r.io":{"password":"` + password,
		"invalid escape: docker configuration: not JSON, at byte 32":               `{"auths":{"r.io":{"password":"\x` + password + `"}}}`,
		"auth with a line break: auth: not the base64 of a user name,":             `{"auths":{"r.io":{"auth":"YQ==\n"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, want, _ := strings.Cut(name, ": ")
			var ring credential.Keyring
			err := ring.AddSecret(credential.Secret{Object: credential.Object{Namespace: "ns", Name: "s"}, Data: []byte(data)})
			require.Error(t, err)
			assert.Contains(t, err.Error(), want)
			assert.Contains(t, err.Error(), "secret ns/s: ")
			assert.NotContains(t, err.Error(), password)
			assert.NotContains(t, err.Error(), encode([]byte(password)))
		})
	}
}

// FuzzKeyring parses any secret and looks up any image name. Lookup returns at most the credentials of the secret.
func FuzzKeyring(f *testing.F) {
	f.Add([]byte(`{"auths":{"*.r.io:5000/x":{"auth":"YTpi"}}}`), "a.r.io:5000/x/y")
	f.Add([]byte(`{"auths":{"https://index.docker.io/v1/":{"username":"u"}}}`), "docker.io/library/x")
	f.Fuzz(func(t *testing.T, data []byte, repository string) {
		config, err := credential.ParseConfig(data, credential.DockerConfigJSON)
		if err != nil {
			return
		}
		var ring credential.Keyring
		_ = ring.Add(config, credential.Source{})
		if found := ring.Lookup(repository); len(found) > len(config) {
			t.Errorf("%d credentials found among %d", len(found), len(config))
		}
	})
}

func TestFilesUseFirstReadableFile(t *testing.T) {
	dir := t.TempDir()
	path := func(name, content string) string {
		p := filepath.Join(dir, name)
		if content != "" {
			require.NoError(t, os.WriteFile(p, []byte(content), 0o600))
		}
		return p
	}
	missing := path("missing.json", "")
	broken := path("broken.json", `{`+password)
	good := path("config.json", `{"auths":{"r.io":{"username":"new","password":"p"}}}`)
	long := path("long.json", `{"auths":{"r.io":{"username":"long"}}}`+strings.Repeat(" ", 1<<20))
	old := path(".dockercfg", `{"r.io":{"username":"old","password":"p"}}`)

	for _, tt := range []struct {
		name  string
		files credential.Files
		want  string
		err   string
	}{
		{"no files", nil, "", ""},
		{"missing file", credential.Files{missing}, "", ""},
		{"first existing file", credential.Files{missing, good, old}, "new", ""},
		{"file in the old format", credential.Files{old, good}, "old", ""},
		{"invalid JSON and a valid file", credential.Files{broken, good}, "new", broken},
		{"directory and a valid file", credential.Files{dir, good}, "new", dir},
		{"file over the size limit", credential.Files{long, good}, "new", long + ": more than 1048576 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found, err := tt.files.Credentials(t.Context(), "r.io/x", credential.Pod{})
			if tt.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.err)
				assert.NotContains(t, err.Error(), password)
			}
			if tt.want == "" {
				assert.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			assert.Equal(t, tt.want, found[0].Username)
			assert.Equal(t, credential.Source{}, found[0].Source)
		})
	}
}

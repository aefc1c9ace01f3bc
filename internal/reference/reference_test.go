// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/reference"
)

var (
	hex64  = strings.Repeat("0123456789abcdef", 4)
	digest = "sha256:" + hex64
)

func ExampleParse() {
	ref, err := reference.Parse("busybox")
	fmt.Println(ref.Repository(), err)
	fmt.Println(ref)
	fmt.Println(ref.Tagged())
	// Output:
	// docker.io/library/busybox <nil>
	// docker.io/library/busybox:latest
	// busybox:latest
}

func TestParse(t *testing.T) {
	for _, tt := range []struct{ in, repository, tagged string }{
		{"busybox", "docker.io/library/busybox", "busybox:latest"},
		{"busybox:1.36", "docker.io/library/busybox", "busybox:1.36"},
		{"busybox@" + digest, "docker.io/library/busybox", "busybox@" + digest},
		{"busybox:1@" + digest, "docker.io/library/busybox", "busybox:1@" + digest},
		{"team/app", "docker.io/team/app", "team/app:latest"},
		{"docker.io/busybox", "docker.io/library/busybox", "docker.io/busybox:latest"},
		{"index.docker.io/busybox", "docker.io/library/busybox", "index.docker.io/busybox:latest"},
		{"ghcr.io/team/app:v1", "ghcr.io/team/app", "ghcr.io/team/app:v1"},
		{"localhost/x", "localhost/x", "localhost/x:latest"},
		{"localhost:5000/x:y", "localhost:5000/x", "localhost:5000/x:y"},
		{"localhost:5000", "docker.io/library/localhost", "localhost:5000"}, // localhost:5000 alone is an image with a tag
		{"[fe80::1]:5000/x", "[fe80::1]:5000/x", "[fe80::1]:5000/x:latest"},
		{"Registry/x", "Registry/x", "Registry/x:latest"},
		{"a_b.c/d", "a_b.c/d", "a_b.c/d:latest"}, // a_b.c is no domain
		{"a__b/c---d/e.f", "docker.io/a__b/c---d/e.f", "a__b/c---d/e.f:latest"},
		{"x:A_.-9", "docker.io/library/x", "x:A_.-9"},
		{"r.io/" + strings.Repeat("a", 255), "r.io/" + strings.Repeat("a", 255), "r.io/" + strings.Repeat("a", 255) + ":latest"},
		{hex64 + "0", "docker.io/library/" + hex64 + "0", hex64 + "0:latest"},
	} {
		ref, err := reference.Parse(tt.in)
		if assert.NoError(t, err) {
			assert.Equal(t, tt.repository, ref.Repository(), tt.in)
			assert.Equal(t, tt.tagged, ref.Tagged(), tt.in)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for in, why := range map[string]string{
		"":                                    "is empty",
		hex64:                                 "is an ID",
		"FAILED_IMAGE":                        "repository",
		"Busybox":                             "repository",
		"team/App":                            "repository",
		"busybox:":                            "tag",
		"busybox:-x":                          "tag",
		"busybox:" + strings.Repeat("x", 129): "tag",
		"busybox@":                            "digest",
		"busybox@sha256:abc":                  "digest",
		"busybox@md5:" + hex64:                "digest",
		"busybox@" + strings.ToUpper(digest):  "digest",
		"busybox@" + digest + "@" + digest:    "digest",
		"-x/y.z":                              "repository",
		"x..y":                                "repository",
		"x___y":                               "repository",
		"x-":                                  "repository",
		"/x":                                  "repository",
		"r.io//x":                             "repository",
		"r.io/x/":                             "repository",
		"r.io:/x":                             "repository",
		"r.io:http/x":                         "repository",
		"[::1/x":                              "repository",
		"https://r.io/x":                      "repository",
		" busybox":                            "repository",
		"busybox\n":                           "repository",
		"r.io/" + strings.Repeat("a", 256):    "longer than 255",
	} {
		_, err := reference.Parse(in)
		if assert.Error(t, err, in) {
			assert.Contains(t, err.Error(), why, in)
		}
	}
}

// grammar is the grammar that Parse implements, as a regular expression.
var grammar = func() *regexp.Regexp {
	const (
		label  = `[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?`
		domain = `(?:` + label + `(?:\.` + label + `)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`
		part   = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
		tag    = `[\w][\w.-]{0,127}`
		digest = `sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}`
	)
	return regexp.MustCompile(`^((?:` + domain + `/)?` + part + `(?:/` + part + `)*)(?::(` + tag + `))?(?:@(` + digest + `))?$`)
}()

// FuzzParse compares Parse with the grammar, and a parsed reference with its text.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"busybox", "a/b:c", "r.io:5000/a/b@" + digest, "a_b.c/d", "[::1]:80/x:y@" + digest, hex64, "A/b", "x:y/z", "a.b:c/d",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := reference.Parse(s)
		if err != nil {
			// The grammar must refuse a refused reference too, except if it has no domain, is too long or has upper-case
			// letters in its path.
			if first, rest, ok := strings.Cut(s, "/"); ok && strings.Contains(first, ".") && strings.ToLower(rest) == rest && len(s) < 255 {
				require.False(t, grammar.MatchString(s), err)
			}
			return
		}
		require.Regexp(t, grammar, s)
		m := grammar.FindStringSubmatch(s)
		require.Equal(t, []string{m[1], m[2], m[3]}, []string{ref.Short, ref.Tag, ref.Digest})
		require.True(t, strings.HasSuffix(ref.Path, ref.Short[strings.LastIndex(ref.Short, "/")+1:]))
		require.LessOrEqual(t, len(ref.Path), 255)

		registry, rest := reference.Split(m[1])
		require.Equal(t, ref.Repository(), registry+"/"+rest, "Split and Parse return the same registry")
		registry, rest = reference.Split(ref.Repository())
		require.Equal(t, ref.Repository(), registry+"/"+rest, "a complete repository is not changed")

		again, err := reference.Parse(ref.String())
		require.NoError(t, err)
		require.Equal(t, ref.String(), again.String())
		tagged, err := reference.Parse(ref.Tagged())
		require.NoError(t, err)
		require.Equal(t, ref.String(), tagged.String())
	})
}

func TestIsLatest(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for image, want := range map[string]bool{
		"busybox": true, "busybox:latest": true, "ghcr.io:5000/team/app": true, "busybox:latest" + digest: true,
		"busybox:1": false, "busybox" + digest: false, "ghcr.io:5000/team/app:v1": false, "": false, "Upper:latest": false,
	} {
		assert.Equal(t, want, reference.IsLatest(image), image)
	}
}

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/internal/script"
)

// TestScenarios runs testdata/ensure/*.txt. The indented lines below an action are its results: the pulls of the runtime,
// reported errors, and the result of Ensure. Lines:
//
//	options KEY=VALUE...                      verify, allowlist, records=no, qps, burst, limitwait
//	preloaded IMAGE...                        images that exist from the start
//	registry PREFIX KEY=VALUE...              users=u:password,... (none: open to all); error=TEXT up to the end of the line
//	secret NAME REGISTRY USER:PASSWORD...     or "broken"; the same name again changes the secret
//	node REGISTRY USER:PASSWORD               credential provider for all pods; or "node broken"
//	TIME POD wants IMAGE KEY=VALUE...         Ensure; policy, secrets=NAME,...
//	TIME agent restarts                       with the same runtime and records
//	TIME records are damaged                  truncates all records
func TestScenarios(t *testing.T) {
	script.Run(t, "testdata/ensure/*.txt", func(t *testing.T, text string) (result string) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) { result = runScenario(t, dir, text) })
		return result
	})
}

// scenario is the state of one scenario: a node with a puller.
type scenario struct {
	t        *testing.T
	began    time.Time
	out      *strings.Builder
	opts     images.Options
	images   []cri.Image
	registry registry
	secrets  map[string]credential.Secret
	runtime  *critest.Runtime
	puller   *images.Puller
}

func runScenario(t *testing.T, dir, text string) string {
	s := &scenario{
		t: t, began: time.Now(), opts: images.Options{Records: dir, QPS: -1},
		images: []cri.Image{}, secrets: map[string]credential.Secret{},
	}
	s.opts.Hooks.Error = func(err error) {
		s.print("reported: %s", strings.ReplaceAll(err.Error(), dir, "DIR"))
	}
	return script.Lines(text, "  ", func(out *strings.Builder, words []string) {
		s.out = out
		s.runLine(words)
	})
}

func (s *scenario) print(format string, args ...any) { fmt.Fprintf(s.out, "  "+format+"\n", args...) }

func (s *scenario) runLine(f []string) {
	switch f[0] {
	case "options":
		s.setOptions(f[1:])
	case "preloaded":
		for _, name := range f[1:] {
			s.images = append(s.images, critest.NewImage(name, 1))
		}
	case "registry":
		s.registry.addRule(f[1], f[2:])
	case "secret":
		s.secrets[f[1]] = newSecret(f[1], f[2:])
	case "node":
		s.opts.Providers = append(s.opts.Providers, newProvider(f[1:]))
	default:
		at, err := time.ParseDuration(f[0])
		require.NoError(s.t, err)
		require.GreaterOrEqual(s.t, at, time.Since(s.began), "times in the script must not decrease")
		time.Sleep(at - time.Since(s.began))
		s.runAction(f[1:])
	}
}

func (s *scenario) setOptions(args []string) {
	for _, arg := range args {
		k, v, _ := strings.Cut(arg, "=")
		switch k {
		case "verify":
			s.opts.Verify = images.VerifyPolicy(v)
		case "allowlist":
			s.opts.Allowlist = strings.Split(v, ",")
		case "records":
			s.opts.Records = ""
		case "qps":
			_, err := fmt.Sscan(v, &s.opts.QPS)
			require.NoError(s.t, err)
		case "burst":
			_, err := fmt.Sscan(v, &s.opts.Burst)
			require.NoError(s.t, err)
		case "limitwait":
			wait, err := time.ParseDuration(v)
			require.NoError(s.t, err)
			s.opts.LimitWait = wait
		default:
			s.t.Fatalf("options: unknown %q", arg)
		}
	}
}

// newSecret returns a pull secret with logins, or an unreadable one.
func newSecret(name string, args []string) credential.Secret {
	data := []byte(`{"auths":`)
	if args[0] != "broken" {
		user, password, _ := strings.Cut(args[1], ":")
		data = fmt.Appendf(nil, `{"auths":{%q:{"username":%q,"password":%q}}}`, args[0], user, password)
	}
	return credential.Secret{Object: credential.Object{UID: "uid-" + name, Namespace: "ns", Name: name}, Data: data}
}

// newProvider returns a credential provider with one login.
func newProvider(args []string) credential.Provider {
	return credential.ProviderFunc(func(_ context.Context, repository string, _ credential.Pod) ([]credential.Credential, error) {
		if args[0] == "broken" {
			return nil, errors.New("provider of the node: broken")
		}
		user, password, _ := strings.Cut(args[1], ":")
		var ring credential.Keyring
		err := ring.Add(credential.Config{args[0]: {Username: user, Password: password}}, credential.Source{})
		return ring.Lookup(repository), err
	})
}

func (s *scenario) runAction(f []string) {
	if s.runtime == nil {
		s.runtime = critest.New(critest.Options{Images: s.images, Pull: s.pullImage})
	}
	if s.puller == nil || f[0] == "agent" {
		var err error
		s.puller, err = images.New(s.runtime, s.runtime, s.opts)
		require.NoError(s.t, err)
		require.NoError(s.t, s.puller.Recover(s.t.Context()))
	}
	switch f[0] {
	case "agent":
	case "records":
		s.damageRecords()
	default:
		s.ensureImage(f[0], f[2], f[3:])
	}
}

// damageRecords truncates each record file to half of its length.
func (s *scenario) damageRecords() {
	files, err := filepath.Glob(filepath.Join(s.opts.Records, "*", "*"))
	require.NoError(s.t, err)
	for _, file := range files {
		info, err := os.Stat(file)
		require.NoError(s.t, err)
		require.NoError(s.t, os.Truncate(file, info.Size()/2))
	}
}

func (s *scenario) ensureImage(pod, image string, args []string) {
	r := images.Request{Pod: credential.Pod{UID: "uid-" + pod, Namespace: "ns", Name: pod}, Image: image}
	for _, arg := range args {
		switch k, v, _ := strings.Cut(arg, "="); k {
		case "policy":
			r.Policy = images.Policy(v)
		case "secrets":
			for name := range strings.SplitSeq(v, ",") {
				require.Contains(s.t, s.secrets, name)
				r.Secrets = append(r.Secrets, s.secrets[name])
			}
		default:
			s.t.Fatalf("wants: unknown %q", arg)
		}
	}
	began := time.Now()
	got, err := s.puller.Ensure(s.t.Context(), r)
	if waited := time.Since(began); waited > 0 {
		s.print("after %v", waited)
	}
	if err == nil {
		s.print("ready %s", got.RepoTags[0])
		return
	}
	e, ok := errors.AsType[*images.Error](err)
	require.True(s.t, ok, err)
	s.print("%s", e)
	if !e.Retry.IsZero() {
		s.print("retry at %v", e.Retry.Sub(s.began))
	}
}

func (s *scenario) pullImage(_ context.Context, i cri.ImageSpec, auth *cri.Auth) (cri.Image, error) {
	as := "anybody"
	if auth != nil {
		as = auth.Username
	}
	s.print("pull %s as %s", i.Image, as)
	return s.registry.pullImage(i.Image, auth)
}

// registry simulates all registries.
type registry struct {
	rules []rule
}

type rule struct {
	prefix string
	users  []string // "user:password"; empty: no login needed
	err    string
}

func (g *registry) addRule(prefix string, args []string) {
	r := rule{prefix: prefix}
	for i, arg := range args {
		k, v, _ := strings.Cut(arg, "=")
		switch k {
		case "users":
			r.users = strings.Split(v, ",")
		case "error":
			r.err = strings.Join(append([]string{v}, args[i+1:]...), " ")
		}
	}
	g.rules = slices.Insert(g.rules, 0, r)
}

func (g *registry) pullImage(image string, auth *cri.Auth) (cri.Image, error) {
	i := slices.IndexFunc(g.rules, func(r rule) bool { return strings.HasPrefix(image, r.prefix) })
	if i < 0 {
		return cri.Image{}, errors.New("no such host")
	}
	r := g.rules[i]
	switch {
	case r.err != "":
		return cri.Image{}, errors.New(r.err)
	case len(r.users) > 0 && auth == nil:
		return cri.Image{}, errors.New("401 Unauthorized")
	case len(r.users) > 0 && !slices.Contains(r.users, auth.Username+":"+auth.Password):
		return cri.Image{}, errors.New("403 Forbidden for " + auth.Username + ":" + auth.Password)
	}
	return critest.NewImage(image, 1), nil
}

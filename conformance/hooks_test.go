// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
)

// TestHook runs hooks of all types, valid and invalid. TestHookSleep covers sleep hooks, and TestHookHangs covers servers
// that hang.
func TestHook(t *testing.T) {
	s := newHookStage(t)
	comparison := conformance.Comparison[hookInput, hookRun]{
		Make:    s.makeHook,
		Kubelet: func(h hookInput) hookRun { return s.run(h, s.byKubelet) },
		Ours:    func(h hookInput) hookRun { return s.run(h, s.byNodeagent) },
		Same: func(kubelet, ours hookRun) bool {
			if kubelet.Message == anyMessage {
				kubelet.Message = ours.Message
			}
			return reflect.DeepEqual(kubelet, ours)
		},
		Exceptions: hookExceptions,
	}
	comparison.Run(t, flags.AtMost(10_000)) // each input causes at least two requests
	requireExceptions(t, comparison, 2_000)
}

// requireExceptions fails if an exception occurs for none of the first inputs. A comparison uses it if it has too few inputs to
// check this in Run.
func requireExceptions[In, Out any](t *testing.T, c conformance.Comparison[In, Out], inputs uint64) {
	t.Helper()
	for _, e := range c.Exceptions {
		found := false
		for i := uint64(0); i < inputs && !found; i++ {
			in := func() In { return c.Make(conformance.NewChoices(conformance.RandomBytes(1, i))) }
			found = e.When(in()) && !reflect.DeepEqual(c.Kubelet(in()), c.Ours(in()))
		}
		if !found {
			t.Errorf("exception %q does not occur any more", e.Name)
		}
	}
}

// anyMessage marks messages that an exception does not predict.
const anyMessage = "*"

var hookExceptions = []conformance.Exception[hookInput, hookRun]{{
	Name:   "output",
	Reason: "an error has the beginning of the command's output as text; the kubelet puts the complete output into the pod status",
	When:   func(h hookInput) bool { return h.Handler.Exec != nil && h.Result.ExitCode != 0 },
	Want: func(h hookInput, kubelet hookRun) hookRun {
		beginning := func(s []byte) string { return strings.ToValidUTF8(string(s[:min(len(s), hook.MaxOutput)]), "\uFFFD") }
		all := slices.Concat(h.Result.Stdout, h.Result.Stderr)
		kubelet.Message = strings.Replace(kubelet.Message,
			fmt.Sprintf(": %s, message: %q", h.Result.Stderr, all),
			fmt.Sprintf(": %s, message: %q", beginning(h.Result.Stderr), beginning(all)), 1)
		return kubelet
	},
}, {
	Name:   "no command",
	Reason: "an empty command is not run",
	When:   func(h hookInput) bool { return h.Handler.Exec != nil && len(h.Handler.Exec.Command) == 0 },
	Want:   func(hookInput, hookRun) hookRun { return hookRun{Failed: true, Message: anyMessage} },
}, {
	Name:   "kept connection",
	Reason: "each request uses a new connection; net/http repeats a request if a reused connection breaks",
	When:   func(h hookInput) bool { return endsAtPath(h, "") && !endsAtPath(h, "/loop") },
	Want: func(_ hookInput, kubelet hookRun) hookRun {
		if n := len(kubelet.Requests); n > 1 && kubelet.Requests[n-1] == kubelet.Requests[n-2] {
			kubelet.Requests = kubelet.Requests[:n-1]
		}
		return kubelet
	},
}, {
	Name:   "long header",
	Reason: "at most 256 KiB of headers are read; the kubelet reads 10 MiB",
	When:   func(h hookInput) bool { return endsAtPath(h, longHeader) },
	Want: func(_ hookInput, kubelet hookRun) hookRun {
		return hookRun{Requests: kubelet.Requests, Failed: true, Message: anyMessage}
	},
}, {
	Name:   "quoted error",
	Reason: "a server cannot cause a request without TLS by a redirect to a URL that contains an error text of net/http",
	When: func(h hookInput) bool {
		return h.Handler.HTTPGet != nil && strings.Contains(h.Handler.HTTPGet.Path, "/[server%")
	},
	Want: func(_ hookInput, kubelet hookRun) hookRun {
		at := slices.IndexFunc(kubelet.Requests, func(r string) bool { return strings.Contains(r, " "+quotedError+" ") })
		return hookRun{Requests: kubelet.Requests[:at+1], Failed: true, Message: anyMessage}
	},
}, {
	Name:   "password in the path",
	Reason: "a password, even in the path, is sent without TLS only if the hook specifies so",
	When: func(h hookInput) bool {
		return h.Handler.HTTPGet != nil && h.Handler.HTTPGet.Path == pathWithPassword && strings.EqualFold(string(h.Handler.HTTPGet.Scheme), "https")
	},
	Want: func(_ hookInput, kubelet hookRun) hookRun {
		for i, r := range kubelet.Requests {
			kubelet.Requests[i] = strings.Replace(r, "Authorization: Basic dXNlcjpzZWNyZXQ=\n", "", 1)
		}
		return kubelet
	},
}}

const (
	longHeader       = "/header"
	quotedError      = "/to/302?at=http://[server%20gave%20HTTP%20response%20to%20HTTPS%20client"
	pathWithPassword = "//user:secret@x/stop"
)

// endsAtPath reports whether the path of a hook ends in path, directly or after redirects.
func endsAtPath(h hookInput, path string) bool {
	return h.Handler.HTTPGet != nil && strings.HasSuffix(h.Handler.HTTPGet.Path, path)
}

// makeHook returns a random hook.
func (s *hookStage) makeHook(c *conformance.Choices) hookInput {
	h := hookInput{Pod: "web"}
	switch c.Int(8) {
	default:
		h.Handler.HTTPGet = s.get(c)
		for range c.Int(4) {
			h.Ports = append(h.Ports, corev1.ContainerPort{
				Name:          conformance.Pick(c, "web", "admin", ""),
				ContainerPort: int32(conformance.Pick(c, s.plain, s.secure, s.closed, 0, -1, 70000)),
			})
		}
		if c.OneIn(24) {
			h.Pod = "host"
		}
	case 5:
		h.Handler.Exec = &corev1.ExecAction{Command: conformance.Pick(c,
			[]string{"drain"}, []string{"sh", "-c", "echo $(A) $$"}, []string{""}, []string{"a b", "ä"}, nil)}
		h.Result = cri.ExecResult{
			ExitCode: conformance.Pick(c, 0, 1, 7, 127, 255), Stdout: hookOutput(c), Stderr: hookOutput(c),
		}
		h.Gone = c.OneIn(8)
	case 6:
		h.Handler.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt(s.plain)}
	case 7:
		h.Handler.Sleep = &corev1.SleepAction{Seconds: conformance.Pick[int64](c, 0, -1)}
	}
	switch c.Int(24) { // no handler, or two handlers
	case 20:
		h.Handler = corev1.LifecycleHandler{}
	case 21:
		h.Handler.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt(s.plain)}
	case 22:
		h.Handler.Sleep = &corev1.SleepAction{}
	case 23:
		h.Handler.Exec = &corev1.ExecAction{Command: []string{"first"}}
	}
	return h
}

func hookOutput(c *conformance.Choices) []byte {
	return []byte(conformance.Pick(c, "", "one\ntwo\n", "\"quoted\" \x00", strings.Repeat("x", 1024), strings.Repeat("x", 1025), "\xff\xfe"))
}

// get returns a request. One in four is unusual or invalid.
func (s *hookStage) get(c *conformance.Choices) *corev1.HTTPGetAction {
	a := &corev1.HTTPGetAction{Path: s.path(c)}
	a.Port = intstr.FromInt(conformance.Pick(c, s.plain, s.secure, s.plain, s.secure, s.plain, s.secure, s.other, s.rude, s.closed))
	a.Scheme = conformance.Pick[corev1.URIScheme](c, "", "HTTP", "HTTPS", "HTTPS")
	a.Host = conformance.Pick(c, "", "", loopback, "localhost")
	for range c.Int(4) {
		a.HTTPHeaders = append(a.HTTPHeaders, corev1.HTTPHeader{
			Name:  conformance.Pick(c, "X-A", "Authorization", "authorization", "Cookie", "Host", "User-Agent", "Accept", "Connection"),
			Value: conformance.Pick(c, "secret", "", "shop.example:8080", "close"),
		})
	}
	if c.OneIn(6) {
		a.Port = intstr.FromString(conformance.Pick(c, "web", "admin", "", "nobody", strconv.Itoa(s.plain)))
	}
	if !c.OneIn(4) {
		return a
	}
	odd := anyGet(c, conformance.Pick(c, s.plain, s.plain, s.plain, s.plain, s.secure, 0, -1, 65536)).HTTPGet
	odd.Scheme = conformance.Pick(c, a.Scheme, "hTTp", "https", "ftp")
	odd.Host = conformance.Pick(c, a.Host, "", "LOCALHOST", "a b", "[::1]", "127.0.0.1:80", "%")
	return odd
}

// path returns a path of the site, possibly behind redirects.
func (s *hookStage) path(c *conformance.Choices) string {
	path := conformance.Pick(c, "/", "stop", "/stop?now=1&b#x", pathWithPassword, "/status/"+strconv.Itoa(200+c.Int(256)), "/hangup", "/loop",
		"/body/10239", "/body/10240", "/body/10241", "/body/1048576", "/endless", "/announced", "/short", longHeader, "/upgrade", "/early",
		quotedError, "/to/302?at=ftp://127.0.0.1/", "/to/302")
	for range c.Int(3) {
		at := path
		if !c.OneIn(3) {
			at = fmt.Sprintf("%s://%s:%d%s", conformance.Pick(c, "http", "https"), conformance.Pick(c, loopback, loopback, "localhost", "127.0.0.2"),
				conformance.Pick(c, s.plain, s.other, s.secure, s.closed), at)
		}
		path = fmt.Sprintf("/to/%d?at=%s", conformance.Pick(c, 302, 301, 303, 307, 308, 300, 304),
			strings.NewReplacer("?", "%3F", "&", "%26", "%", "%25").Replace(at))
	}
	return path
}

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/configz"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/server"
	"k8s.io/kubernetes/pkg/kubelet/server/stats"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/nodeattributes"
	"github.com/seed81659283/nodeagent/nodeapi"
)

func TestNodeAPI(t *testing.T) {
	apiServed = sync.OnceValue(func() *served { return newServed(t.TempDir()) })
	nodeAPI.Run(t, flags.AtMost(30_000))
}

func TestAttributes(t *testing.T) { run(t, attributes) }
func FuzzAttributes(f *testing.F) { fuzz(f, attributes) }

// apiRequest is a request to the API of a node.
type apiRequest struct {
	Method, Target string
	Header         map[string]string
	Body           string
	ReadOnly       bool
}

// apiAnswer has the compared fields of a response.
type apiAnswer struct {
	Code   int
	Header map[string]string
	Body   string
}

// apiServed returns the servers of both sides, with the same pods.
var apiServed func() *served

type served struct{ kubelet, kubeletReadOnly, ours, oursReadOnly http.Handler }

var nodeAPI = conformance.Comparison[apiRequest, apiAnswer]{
	Make: makeAPIRequest,
	Kubelet: func(r apiRequest) apiAnswer {
		return r.ask(pick(r.ReadOnly, apiServed().kubeletReadOnly, apiServed().kubelet))
	},
	Ours: func(r apiRequest) apiAnswer {
		return r.ask(pick(r.ReadOnly, apiServed().oursReadOnly, apiServed().ours))
	},
	Exceptions: []conformance.Exception[apiRequest, apiAnswer]{
		{
			Name: "structured status and flags", Reason: "JSON is returned only for the exact version, group and kind, and is the only structured format; errors are text",
			When: func(r apiRequest) bool {
				return (strings.HasPrefix(r.Target, "/statusz") || strings.HasPrefix(r.Target, "/flagz")) && r.Header["Accept"] != ""
			},
		},
	},
}

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

var (
	maskedTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)`)
	maskedZ    = regexp.MustCompile(`(?m)^(Started|Up|Go version|Binary version|Emulation version|Paths|flag)(: |:|=| )(.*)$`)
)

// notifier adds CloseNotify to a recorder, which the kubelet's request log needs.
type notifier struct{ *httptest.ResponseRecorder }

func (notifier) CloseNotify() <-chan bool { return nil }

func (r apiRequest) ask(h http.Handler) apiAnswer {
	req := httptest.NewRequest(r.Method, "/", strings.NewReader(r.Body))
	u, err := url.ParseRequestURI(r.Target)
	if err != nil {
		return apiAnswer{Body: err.Error()}
	}
	req.URL, req.RequestURI = u, r.Target
	for name, value := range r.Header {
		req.Header.Set(name, value)
	}
	w := notifier{httptest.NewRecorder()}
	h.ServeHTTP(w, req)
	a := apiAnswer{Code: w.Code, Header: make(map[string]string), Body: w.Body.String()}
	for _, name := range []string{"Content-Type", "Allow", "Location", "X-Content-Type-Options", "Retry-After", "Content-Encoding"} {
		if values := w.Result().Header.Values(name); len(values) > 0 {
			a.Header[name] = strings.Join(values, "|")
		}
	}
	a.Body = maskedTime.ReplaceAllString(a.Body, "TIME")
	switch path := u.Path; {
	case strings.HasPrefix(path, "/statusz"), strings.HasPrefix(path, "/flagz"):
		lines := maskedZ.ReplaceAllString(a.Body, "$1: X")
		a.Body = strings.Join(slices.DeleteFunc(strings.Split(lines, "\n"), func(l string) bool {
			return l == "" || strings.HasPrefix(l, "Emulation version")
		}), "\n")
	case strings.TrimSuffix(path, "/") == "/pods" && a.Code == http.StatusOK:
		a.Body = sortedItems(a.Body)
	case strings.HasPrefix(path, "/metrics"), strings.HasPrefix(path, "/debug/pprof"):
		if a.Code == http.StatusOK {
			a.Body, a.Header = "", nil
		}
	}
	return a
}

// sortedItems sorts the items of a list without decoding them: the kubelet's order is that of a map.
func sortedItems(list string) string {
	before, rest, _ := strings.Cut(list, `"items":[`)
	var items []json.RawMessage
	decoder := json.NewDecoder(strings.NewReader("[" + rest))
	if err := decoder.Decode(&items); err != nil {
		return list
	}
	slices.SortFunc(items, func(a, b json.RawMessage) int { return strings.Compare(string(a), string(b)) })
	for _, item := range items {
		before += "\n" + string(item)
	}
	return before + "\n" + rest[decoder.InputOffset()-1:]
}

func makeAPIRequest(c *conformance.Choices) (r apiRequest) {
	r.Method = conformance.Pick(c, "GET", "GET", "GET", "POST", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "FOO")
	r.ReadOnly = c.OneIn(6)
	ns := conformance.Pick(c, "default", "default", "default", "other", "", "%2e%2e")
	pod := conformance.Pick(c, "p", "p", "p", "waiting", "absent", "", "p%2F")
	container := conformance.Pick(c, "c", "c", "c", "tty", "init", "debug", "stopped", "nolog", "gone", "", "%00")
	uid := conformance.Pick(c, "u1", "u1", "u2", "")
	ofContainer := func(root string) string { return root + "/" + ns + "/" + pod + "/" + container }
	withUID := func(root string) string { return root + "/" + ns + "/" + pod + "/" + uid + "/" + container }
	query := url.Values{}
	add := func(name string, values ...string) {
		for range c.Int(2) + c.Int(2) {
			query.Add(name, conformance.Pick(c, values...))
		}
	}
	switch c.Int(8) {
	case 0, 1:
		r.Target = conformance.Pick(c, ofContainer, withUID)(conformance.Pick(c, "/exec", "/attach"))
		add("input", "1", "true", "0")
		add("output", "1", "0")
		add("error", "1", "0")
		add("tty", "1", "0")
		add("command", "sh", "-c", "a b")
	case 2:
		r.Target = "/portForward/" + ns + "/" + pod + conformance.Pick(c, "", "/"+uid, "/"+uid+"/x")
		add("port", "80", "80,81", "", "0", "x", "65536")
	case 3, 4:
		r.Target = ofContainer("/containerLogs")
		add("tailLines", "0", "1", "-1", "x", "")
		add("tail", "1", "all", "x", "")
		add("limitBytes", "1", "0", "7", "x")
		add("sinceSeconds", "1", "0", "100000000", "x")
		add("sinceTime", "2026-01-02T03:04:05Z", "x", "", "null")
		add("timestamps", "true", "false", "0", "", "FALSE")
		add("previous", "true", "false", "0")
		add("follow", "false", "0")
		add("stream", "All", "Stdout", "Stderr", "", "x")
		add("insecureSkipTLSVerifyBackend", "true")
	case 5:
		r.Target = conformance.Pick(c, ofContainer, withUID)(conformance.Pick(c, "/run", "/checkpoint"))
		add("cmd", "true", "fail", "a b  c", "")
		add("timeout", "5", "7", "x", "-1")
	default:
		r.Target = conformance.Pick(c, "/pods", "/pods/", "/runningpods/", "/runningpods", "/stats/summary", "/stats/", "/stats", "/healthz",
			"/healthz/ping", "/healthz/log", "/healthz/syncloop", "/healthz/own", "/healthz/", "/healthz/x", "/configz", "/configz/", "/metrics/probes",
			"/metrics/", "/metrics/x", "/logs", "/logs/", "/logs/a.log", "/logs/dir", "/logs/dir/", "/logs/missing",
			"/logs/dir/index.html", "/logs//a.log", "/logs/%2e%2e/a.log", "/debug/pprof", "/debug/pprof/", "/debug/pprof/cmdline",
			"/debug/pprof/missing", "/debug/pprof/symbol", "/debug/flags/v", "/debug/flags", "/debug/", "/statusz", "/flagz", "/", "", "/x", "/exec",
			"/exec/", "/run", "/attach/", "/portForward", "/containerLogs", "/checkpoint", "/checkpoint/", "/pods/x", "//pods", "/./pods",
			"/pods/../configz", "/pods/%2e%2e/configz", "/%70ods", "/podsx", "/allocatedPods", "/exec%2Fdefault/p/c", "/exec/default/p/c/",
			"/exec/default/p/c%2F", "/exec/default//p/c", "/spec/", "/metrics/slis", "*")
		add("verbose", "")
		add("exclude", "ping", "own", "x")
		add("only_cpu_and_memory", "true", "false")
	}
	if len(query) > 0 {
		r.Target += "?" + query.Encode()
	}
	if c.OneIn(12) {
		r.Target += conformance.Pick(c, "&bad=%zz", "?a;b", "&x=1&x=2")
	}
	r.Header = map[string]string{}
	if c.OneIn(6) {
		r.Header["Accept"] = conformance.Pick(c, "application/json", "text/plain", "*/*", "text/html, */*;q=0.1", "application/json;q=0.5, x/y", "x")
	}
	if c.OneIn(8) {
		r.Header["Upgrade"], r.Header["Connection"] = conformance.Pick(c, "websocket", "SPDY/3.1"), "Upgrade"
		r.Header["Sec-Websocket-Protocol"] = conformance.Pick(c, "", "v4.channel.k8s.io", "SPDY/3.1+portforward.k8s.io", "x, SPDY/3.1+portforward.k8s.io")
	}
	if r.Method == "PUT" || c.OneIn(16) {
		r.Body = conformance.Pick(c, "4", "x", "", "-1", "input=1&output=1", "99999999999")
		r.Header["Content-Type"] = conformance.Pick(c, "", "application/x-www-form-urlencoded", "application/json")
	}
	return r
}

func newServed(dir string) *served {
	pods, running, snapshot, files := servedPods(dir)
	nodeLogs := filepath.Join(dir, "log")
	mustDo(os.MkdirAll(filepath.Join(nodeLogs, "dir"), 0o755))
	mustDo(os.WriteFile(filepath.Join(nodeLogs, "a.log"), []byte("a\n"), 0o600))
	mustDo(os.WriteFile(filepath.Join(nodeLogs, "dir", "b.log"), []byte("b\n"), 0o600))
	mustDo(os.Chtimes(filepath.Join(nodeLogs, "a.log"), time.Unix(1, 0), time.Unix(1, 0)))

	host := kubelet.ConformanceHost(pods, running, files, nodeLogs)
	flagged := map[string]string{"flag": "value"}
	settings := &kubeletconfigv1beta1.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration"}, ClusterDomain: "a&b",
	}
	registered, err := configz.New("kubeletconfig")
	mustDo(err)
	mustDo(registered.Set(settings))
	config := &kubeletconfig.KubeletConfiguration{
		EnableDebuggingHandlers: true, EnableSystemLogHandler: true, EnableProfilingHandler: true, EnableDebugFlagsHandler: true,
	}
	all := server.NewServer(context.Background(), host, apiStats{}, []healthz.HealthChecker{healthz.NamedCheck("own", func(*http.Request) error { return fmt.Errorf("trouble") })}, flagReader(flagged), allowAll{}, config)
	readOnly := server.NewServer(context.Background(), host, apiStats{}, []healthz.HealthChecker{healthz.NamedCheck("own", func(*http.Request) error { return fmt.Errorf("trouble") })}, nil, nil, nil)

	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	nodeLogHandler, err := nodeapi.NewNodeLogs(nodeapi.NodeLogsOptions{Dir: nodeLogs})
	mustDo(err)
	runtime := apiRuntime{snapshot: snapshot}
	s, err := nodeapi.New(nodeapi.Options{
		Insecure: true, Pods: nodeapi.PodsFunc(func() []*corev1.Pod { return pods }), Runtime: runtime, Streams: runtime, Summary: apiStats{},
		Checkpointer: runtime, CheckpointDir: "/checkpointed/checkpoints",
		Metrics:      nodeapi.Metrics{All: nothing, CAdvisor: nothing, Resource: nothing, Probes: nothing, SLIs: nothing},
		HealthChecks: []nodeapi.HealthCheck{{Name: "own", Check: func(context.Context) error { return fmt.Errorf("trouble") }}},
		Settings:     func() any { return settings }, Flags: flagged, LogLevel: new(slog.LevelVar), Profiling: true, NodeLogs: nodeLogHandler,
	})
	mustDo(err)
	return &served{kubelet: &all, kubeletReadOnly: &readOnly, ours: s.Handler(), oursReadOnly: s.ReadOnly()}
}

func mustDo(err error) {
	if err != nil {
		panic(err)
	}
}

// servedPods returns the pods of both servers: the API objects, the running pods in the types of both sides, and the log
// files.
func servedPods(dir string) (pods []*corev1.Pod, running []*kubecontainer.Pod, snapshot cri.Snapshot, files map[string]string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u1"}}
	live := &kubecontainer.Pod{ID: "u1", Name: "p", Namespace: "default", Sandboxes: []*kubecontainer.Container{{
		ID: kubecontainer.ContainerID{Type: "x", ID: "sandbox"}, State: kubecontainer.ContainerStateRunning,
	}}}
	identity := cri.PodIdentity{UID: "u1", Name: "p", Namespace: "default"}
	snapshot.Sandboxes = []cri.Sandbox{{ID: "sandbox", Pod: identity, State: cri.SandboxReady}}
	files = make(map[string]string)
	for i, name := range []string{"c", "tty", "nolog"} {
		spec := corev1.Container{Name: name, Image: "image-" + name, TTY: name == "tty"}
		p.Spec.Containers = append(p.Spec.Containers, spec)
		id := fmt.Sprintf("id%d", i)
		live.Containers = append(live.Containers, &kubecontainer.Container{
			ID: kubecontainer.ContainerID{Type: "x", ID: id}, Name: name, Image: spec.Image, State: kubecontainer.ContainerStateRunning,
		})
		path := filepath.Join(dir, id+".log")
		snapshot.Containers = append(snapshot.Containers, cri.Container{
			ID: id, SandboxID: "sandbox", PodUID: "u1", Name: name, State: cri.ContainerRunning, Image: cri.ImageSpec{Image: spec.Image}, LogPath: path,
		})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, ContainerID: "x://" + id, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		})
		if name != "nolog" {
			mustDo(os.WriteFile(path, []byte(strings.Repeat("2026-10-02T03:04:05.000000006Z stdout F a <line> & more\n2026-10-03T03:04:05Z stderr F b\n", 3)), 0o600))
		}
		files[id] = path
	}
	p.Spec.InitContainers = []corev1.Container{{Name: "init"}}
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "stopped"})
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	stopped := corev1.ContainerStateTerminated{ContainerID: "x://gone", ExitCode: 1}
	p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
		Name: "stopped", State: corev1.ContainerState{Terminated: &stopped}, LastTerminationState: corev1.ContainerState{Terminated: &stopped},
	})
	waiting := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "waiting", Namespace: "default", UID: "u2"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}, {Name: "tty"}, {Name: "nolog"}, {Name: "stopped"}}},
	}
	for name, reason := range map[string]string{"c": "ErrImagePull", "tty": "ImagePullBackOff", "nolog": "ContainerCreating", "stopped": ""} {
		status := corev1.ContainerStatus{Name: name}
		if reason != "" {
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
		}
		waiting.Status.ContainerStatuses = append(waiting.Status.ContainerStatuses, status)
	}
	return []*corev1.Pod{p, waiting}, []*kubecontainer.Pod{live}, snapshot, files
}

// apiRuntime returns the same results as the runtime of kubelet.ConformanceHost.
type apiRuntime struct{ snapshot cri.Snapshot }

func (r apiRuntime) List(context.Context) (cri.Snapshot, error) { return r.snapshot, nil }

func (r apiRuntime) ExecSync(_ context.Context, id string, cmd []string, _ time.Duration) (cri.ExecResult, error) {
	if cmd[0] == "fail" {
		return cri.ExecResult{Stdout: []byte("lost"), Stderr: []byte("trouble"), ExitCode: 3}, nil
	}
	return cri.ExecResult{Stdout: fmt.Appendf(nil, "ran %q in ", cmd), Stderr: []byte(id)}, nil
}

func (r apiRuntime) Checkpoint(_ context.Context, id, _ string, timeout time.Duration) error {
	if timeout == 7*time.Second {
		return fmt.Errorf("checkpoint %s", id)
	}
	return nil
}

func (r apiRuntime) fail(w http.ResponseWriter, format string, args ...any) {
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = w.Write(fmt.Appendf(nil, format, args...))
}

func (r apiRuntime) ServeExec(w http.ResponseWriter, _ *http.Request, id string, cmd []string, o cri.StreamOptions) {
	r.fail(w, "exec %s %q %t %t %t %t", id, cmd, o.Stdin, o.Stdout, o.Stderr, o.TTY)
}

func (r apiRuntime) ServeAttach(w http.ResponseWriter, _ *http.Request, id string, o cri.StreamOptions) {
	r.fail(w, "attach %s %t %t %t %t", id, o.Stdin, o.Stdout, o.Stderr, o.TTY)
}

func (r apiRuntime) ServePortForward(w http.ResponseWriter, _ *http.Request, _ string, ports []int32) {
	r.fail(w, "forward u1 %v", ports)
}

// apiStats returns the summaries of both sides.
type apiStats struct{ stats.ResourceAnalyzer }

func apiSummary(name string) *statsapi.Summary {
	return &statsapi.Summary{Node: statsapi.NodeStats{NodeName: name}, Pods: []statsapi.PodStats{}}
}

func (apiStats) Get(context.Context, bool) (*statsapi.Summary, error) { return apiSummary("all"), nil }

func (apiStats) GetCPUAndMemoryStats(context.Context) (*statsapi.Summary, error) {
	return apiSummary("short"), nil
}

func (apiStats) Summary(context.Context) (*statsapi.Summary, error) { return apiSummary("all"), nil }

func (apiStats) CPUAndMemory(context.Context) (*statsapi.Summary, error) {
	return apiSummary("short"), nil
}

type flagReader map[string]string

func (f flagReader) GetFlagz() map[string]string { return f }

// allowAll authorizes all requests.
type allowAll struct {
	dynamiccertificates.CAContentProvider
}

func (allowAll) AuthenticateRequest(*http.Request) (*authenticator.Response, bool, error) {
	return &authenticator.Response{User: &user.DefaultInfo{Name: "u"}}, true, nil
}

func (allowAll) GetRequestAttributes(ctx context.Context, u user.Info, r *http.Request) []authorizer.Attributes {
	return server.NewNodeAuthorizerAttributesGetter("n").GetRequestAttributes(ctx, u, r)
}

func (allowAll) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizerfactory.NewAlwaysAllowAuthorizer().Authorize(ctx, a)
}

var attributes = conformance.Comparison[apiRequest, []nodeattributes.Attribute]{
	Make: func(c *conformance.Choices) apiRequest {
		r := makeAPIRequest(c)
		if c.OneIn(2) {
			r.Target = conformance.Pick(c, "/pods", "/podsx", "/stats", "/statsx", "/logs", "/checkpoint", "/runningpods", "/allocatedPods", "/flagz",
				"/statusz", "/healthz", "/configz", "/metrics", "/x", "") + conformance.Pick(c, "", "/", "/a", "//", "/../exec/x")
		}
		return r
	},
	Kubelet: func(r apiRequest) (all []nodeattributes.Attribute) {
		for _, a := range server.NewNodeAuthorizerAttributesGetter(types.NodeName("n")).GetRequestAttributes(
			context.Background(), &user.DefaultInfo{}, &http.Request{Method: r.Method, URL: &url.URL{Path: r.path()}}) {
			all = append(all, nodeattributes.Attribute{Verb: a.GetVerb(), Subresource: a.GetSubresource()})
		}
		return all
	},
	Ours: func(r apiRequest) []nodeattributes.Attribute { return nodeattributes.ForRequest(r.Method, r.path()) },
	Exceptions: []conformance.Exception[apiRequest, []nodeattributes.Attribute]{{
		Name: "running something by GET", Reason: "with the kubelet, the verb get on nodes/proxy permits commands in all containers (k/k#136550)",
		When: func(r apiRequest) bool {
			first, _, _ := strings.Cut(strings.TrimLeft(r.path(), "/"), "/")
			return r.Method == "GET" && slices.Contains([]string{"exec", "attach", "portForward", "run"}, first)
		},
		Want: func(_ apiRequest, _ []nodeattributes.Attribute) []nodeattributes.Attribute {
			return []nodeattributes.Attribute{{Verb: "create", Subresource: "proxy"}}
		},
	}},
}

// path returns the path of the parsed URL.
func (r apiRequest) path() string {
	if u, err := url.ParseRequestURI(r.Target); err == nil {
		return u.Path
	}
	return r.Target
}

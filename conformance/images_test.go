// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/credentialprovider"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/container"
	kubeletimages "k8s.io/kubernetes/pkg/kubelet/images"
	"k8s.io/kubernetes/pkg/kubelet/images/pullmanager"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/images/credential"
)

// TestImages is a random-operations test of the kubelet's image manager and the Puller. Pods need images, secrets change,
// registries fail and recover, time passes, the agent restarts, and images are removed. After every step both have returned
// the same result, pulled the same images with the same logins, and written the same records.
func TestImages(t *testing.T) {
	said := map[string]int{}
	for seed := range uint64(40) {
		theirs, ours := t.TempDir(), t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			w := newImageScenario(t, seed, theirs, ours)
			for range 300 {
				w.step()
				said[w.ensure()]++
				w.compareRecords()
			}
		})
	}
	for _, reason := range []string{
		"", images.ReasonErrImagePull, images.ReasonImagePullBackOff, images.ReasonErrImageNeverPull,
		images.ReasonInvalidImageName, images.ReasonRegistryUnavailable,
	} {
		if said[reason] < 50 {
			t.Errorf("only %d results %q", said[reason], reason)
		}
	}
}

// shelf is a runtime and its registries.
type shelf struct {
	present map[string]bool   // by full name
	logins  map[string]string // "user:password" by name prefix; empty: no login necessary
	calls   []string
	down    bool
}

func newShelf(images ...string) *shelf {
	s := &shelf{present: map[string]bool{}, logins: map[string]string{
		"docker.io/": "u:p", "r.io/": "v:q", "r.io/team/": "w:r", "a.s.io:5000/": "u:p", "open.io": "",
	}}
	for _, name := range images {
		s.present[name] = true
	}
	return s
}

// fullName returns the name with its registry and without a digest.
func fullName(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if !strings.Contains(name, "/") {
		name = "docker.io/library/" + name
	}
	return name
}

func imageID(name string) string { return "id-of-" + fullName(name) }

// pull pulls an image with a login, or anonymously.
func (s *shelf) pull(image, login string) (string, error) {
	s.calls = append(s.calls, image+" as "+login)
	wanted, longest := "nobody", -1
	for prefix, login := range s.logins {
		if strings.HasPrefix(fullName(image), prefix) && len(prefix) > longest {
			wanted, longest = login, len(prefix)
		}
	}
	switch {
	case s.down:
		return "", errors.New("RegistryUnavailable: down")
	case longest < 0:
		return "", errors.New("no such host")
	case wanted != "" && wanted != login:
		user, _, _ := strings.Cut(login, ":")
		return "", errors.New("no entry for " + user)
	}
	s.present[fullName(image)] = true
	return imageID(image), nil
}

// kubeletShelf is a shelf in the interface of the kubelet's image manager. It tries several logins as kuberuntime does,
// whose code is unexported.
type kubeletShelf struct{ *shelf }

func (s kubeletShelf) PullImage(_ context.Context, i container.ImageSpec, logins []credentialprovider.TrackedAuthConfig,
	_ *runtimeapi.PodSandboxConfig,
) (string, *credentialprovider.TrackedAuthConfig, error) {
	if len(logins) == 0 {
		ref, err := s.pull(i.Image, "")
		return ref, nil, err
	}
	var errs []string
	for _, l := range logins {
		ref, err := s.pull(i.Image, l.Username+":"+l.Password)
		if err == nil {
			return ref, &l, nil
		}
		if !slices.Contains(errs, err.Error()) {
			errs = append(errs, err.Error())
		}
	}
	if len(errs) == 1 {
		return "", nil, errors.New(errs[0])
	}
	return "", nil, errors.New("[" + strings.Join(errs, ", ") + "]")
}

func (s kubeletShelf) GetImageRef(_ context.Context, i container.ImageSpec) (string, error) {
	if s.present[fullName(i.Image)] {
		return imageID(i.Image), nil
	}
	return "", nil
}

func (s kubeletShelf) ListImages(context.Context) (list []container.Image, _ error) {
	for name := range s.present {
		list = append(list, container.Image{ID: imageID(name), RepoTags: []string{name}})
	}
	return list, nil
}

func (s kubeletShelf) RemoveImage(context.Context, container.ImageSpec) error { return nil }

func (s kubeletShelf) ImageStats(context.Context) (*container.ImageStats, error) { return nil, nil }

func (s kubeletShelf) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return nil, nil
}

func (s kubeletShelf) GetImageSize(context.Context, container.ImageSpec) (uint64, error) {
	return 1, nil
}

// ourShelf is a shelf in the interface of the Puller.
type ourShelf struct{ *shelf }

func (s ourShelf) PullImage(_ context.Context, i cri.ImageSpec, a *cri.Auth, _ *cri.SandboxConfig) (string, error) {
	if a == nil {
		return s.pull(i.Image, "")
	}
	return s.pull(i.Image, a.Username+":"+a.Password)
}

func (s ourShelf) ImageStatus(_ context.Context, i cri.ImageSpec) (cri.Image, error) {
	if strings.HasPrefix(i.Image, "id-of-") {
		return cri.Image{ID: i.Image}, nil
	}
	if s.present[fullName(i.Image)] {
		return cri.Image{ID: imageID(i.Image)}, nil
	}
	return cri.Image{}, cri.ErrNotFound
}

func (s ourShelf) ListImages(context.Context) (list []cri.Image, _ error) {
	for name := range s.present {
		list = append(list, cri.Image{ID: imageID(name), RepoTags: []string{name}})
	}
	return list, nil
}

func (s ourShelf) RemoveImage(context.Context, cri.ImageSpec) error { return nil }

func (s ourShelf) ImageUsage(context.Context) (cri.ImageUsage, error) { return cri.ImageUsage{}, nil }

// notRecorded discards the metrics of the kubelet.
type notRecorded struct{}

func (notRecorded) RecordImageStartedPulling(types.UID) {}

func (notRecorded) RecordImageFinishedPulling(types.UID) {}

// pullSecret is a pull secret, which converts to the types of both sides.
type pullSecret struct {
	name, key, login string
	legacy           bool
}

func (s pullSecret) both() (corev1.Secret, credential.Secret) {
	user, password, _ := strings.Cut(s.login, ":")
	data := fmt.Appendf(nil, `{%q:{"username":%q,"password":%q,"email":"e"}}`, s.key, user, password)
	theirs := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: "ns", UID: types.UID("uid-" + s.name)}}
	ours := credential.Secret{Object: credential.Object{Name: s.name, Namespace: "ns", UID: "uid-" + s.name}}
	if s.legacy {
		theirs.Type, theirs.Data = corev1.SecretTypeDockercfg, map[string][]byte{corev1.DockerConfigKey: data}
		ours.Format = credential.Dockercfg
	} else {
		data = fmt.Appendf(nil, `{"auths":%s}`, data)
		theirs.Type, theirs.Data = corev1.SecretTypeDockerConfigJson, map[string][]byte{corev1.DockerConfigJsonKey: data}
	}
	ours.Data = data
	return theirs, ours
}

// imageScenario has two agents on equal nodes.
type imageScenario struct {
	t                  *testing.T
	rand               *rand.Rand
	seed               uint64
	policy             string
	theirDir, ourDir   string
	theirShelf, shelf  *shelf
	nodeKey, nodeLogin string
	secrets            []pullSecret

	records *pullmanager.PullManager
	manager kubeletimages.ImageManager
	puller  *images.Puller
}

func newImageScenario(t *testing.T, seed uint64, theirDir, ourDir string) *imageScenario {
	t.Helper()
	w := &imageScenario{t: t, rand: rand.New(rand.NewPCG(seed, 1)), seed: seed, theirDir: theirDir, ourDir: ourDir}
	w.policy = w.pick("NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyPreloadedImages",
		"NeverVerifyAllowlistedImages", "AlwaysVerify")
	w.theirShelf = newShelf("r.io/app:v2", "docker.io/library/busybox:latest")
	w.shelf = newShelf("r.io/app:v2", "docker.io/library/busybox:latest")
	w.nodeKey, w.nodeLogin = w.key(), w.login()
	for i := range 6 {
		w.secrets = append(w.secrets, pullSecret{fmt.Sprint("s", i), w.key(), w.login(), w.rand.IntN(2) == 0})
	}
	w.start()
	return w
}

func (w *imageScenario) pick(list ...string) string { return list[w.rand.IntN(len(list))] }

func (w *imageScenario) login() string { return w.pick("u:p", "v:q", "w:r") }

func (w *imageScenario) key() string {
	return w.pick("https://index.docker.io/v1/", "docker.io", "r.io", "r.io/team", "https://r.io/v2/app", "*.s.io:5000",
		"a.s.io", "*.io", "r.*", "r.io/te", "open.io", "a.*.io:5000/x")
}

func (w *imageScenario) image() string {
	return w.pick("busybox", "busybox:latest", "docker.io/library/busybox:latest", "r.io/team/app:v1", "r.io/app:v1",
		"r.io/app:v2", "a.s.io:5000/x:y", "open.io/z:1", "nowhere.io/z:1", "NO_NAME",
		"r.io/app:v1@sha256:"+strings.Repeat("0123456789abcdef", 4))
}

// start starts both agents with the records on their disks.
func (w *imageScenario) start() {
	var allowlist []string
	if w.policy == string(images.NeverVerifyAllowlistedImages) {
		allowlist = []string{"r.io/team/*", "busybox"}
	}
	user, password, _ := strings.Cut(w.nodeLogin, ":")

	files, err := pullmanager.NewFSPullRecordsAccessor(klog.Background(), w.theirDir)
	w.must(err)
	policy, err := pullmanager.NewImagePullCredentialVerificationPolicy(
		kubeletconfig.ImagePullCredentialsVerificationPolicy(w.policy), allowlist)
	w.must(err)
	w.records, err = pullmanager.NewImagePullManager(w.t.Context(), files, policy, kubeletShelf{w.theirShelf}, 10)
	w.must(err)
	theirNode := &credentialprovider.BasicDockerKeyring{}
	theirNode.Add(nil, credentialprovider.DockerConfig{w.nodeKey: {Username: user, Password: password}})
	w.manager = kubeletimages.NewImageManager(&record.FakeRecorder{}, theirNode, kubeletShelf{w.theirShelf}, w.records,
		flowcontrol.NewBackOff(10*time.Second, 5*time.Minute), false, nil, 0.04, 5, notRecorded{})

	var ourNode credential.Keyring
	w.must(ourNode.Add(credential.Config{w.nodeKey: {Username: user, Password: password}}, credential.Source{}))
	w.puller, err = images.New(ourShelf{w.shelf}, ourShelf{w.shelf}, images.Options{
		QPS: 0.04, Burst: 5, LimitWait: -1, Records: filepath.Join(w.ourDir, "image_manager"),
		Verify: images.VerifyPolicy(w.policy), Allowlist: allowlist,
		Providers: []credential.Provider{credential.ProviderFunc(
			func(_ context.Context, repository string, _ credential.Pod) ([]credential.Credential, error) {
				return ourNode.Lookup(repository), nil
			})},
	})
	w.must(err)
	w.must(w.puller.Recover(w.t.Context()))
}

func (w *imageScenario) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("seed %d: %v", w.seed, err)
	}
}

// step lets time pass, and sometimes changes the state of both nodes.
func (w *imageScenario) step() {
	time.Sleep(time.Duration(w.rand.IntN(20_000)) * time.Millisecond)
	switch w.rand.IntN(30) {
	case 0:
		w.start()
	case 1:
		s := &w.secrets[w.rand.IntN(len(w.secrets))]
		s.key, s.login = w.key(), w.login()
	case 2, 3:
		w.shelf.down = !w.shelf.down && w.rand.IntN(3) == 0
		w.theirShelf.down = w.shelf.down
	case 4:
		time.Sleep(time.Duration(w.rand.IntN(900)) * time.Second)
	case 5:
		w.remove(fullName(w.image()))
	}
}

// remove removes an image and its record at a full second: the kubelet compares the current time with a rounded one.
func (w *imageScenario) remove(name string) {
	delete(w.theirShelf.present, name)
	delete(w.shelf.present, name)
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	var ids []string
	for name := range w.theirShelf.present {
		ids = append(ids, imageID(name))
	}
	w.records.PruneUnknownRecords(w.t.Context(), ids, time.Now())
	present, err := ourShelf{w.shelf}.ListImages(w.t.Context())
	w.must(err)
	w.must(w.puller.Prune(present, time.Now()))
}

// ensure ensures an image on both sides and returns the reason of the failure, or "".
func (w *imageScenario) ensure() (reason string) {
	pod, image := w.pick("a", "b", "c"), w.image()
	policy := w.pick("Always", "IfNotPresent", "IfNotPresent", "IfNotPresent", "Never")
	var theirs []corev1.Secret
	var ours []credential.Secret
	for _, s := range w.secrets {
		if w.rand.IntN(3) == 0 {
			t, o := s.both()
			theirs, ours = append(theirs, t), append(ours, o)
		}
	}
	w.theirShelf.calls, w.shelf.calls = nil, nil
	_, message, theirErr := w.manager.EnsureImageExists(w.t.Context(), nil,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: "ns", UID: types.UID("uid-" + pod)}},
		image, theirs, &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{}}, "", corev1.PullPolicy(policy))
	_, ourErr := w.puller.Ensure(w.t.Context(), images.Request{
		Pod: credential.Pod{UID: "uid-" + pod, Name: pod, Namespace: "ns"}, Image: image, Policy: images.Policy(policy), Secrets: ours,
	})
	want, got := "", ""
	if theirErr != nil {
		reason = theirErr.Error()
		want = reason + ": " + message
	}
	if e, ok := errors.AsType[*images.Error](ourErr); ok {
		got = e.Error()
		if e.Reason == images.ReasonInvalidImageName { // the messages of both sides differ
			want, got = reason, e.Reason
		}
	}
	if want != got || !slices.Equal(w.theirShelf.calls, w.shelf.calls) {
		w.t.Fatalf("seed %d: %s: %s wants %s %s\nkubelet: %q %v\nours:    %q %v", w.seed, w.policy, pod, image, policy,
			want, w.theirShelf.calls, got, w.shelf.calls)
	}
	return reason
}

func (w *imageScenario) compareRecords() {
	theirs, ours := w.files(w.theirDir), w.files(w.ourDir)
	if !maps.Equal(theirs, ours) {
		w.t.Fatalf("seed %d: records\nkubelet: %v\nours:    %v", w.seed, theirs, ours)
	}
}

func (w *imageScenario) files(dir string) map[string]string {
	content := map[string]string{}
	paths, err := filepath.Glob(filepath.Join(dir, "image_manager", "*", "*"))
	w.must(err)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		w.must(err)
		name, _ := filepath.Rel(dir, path)
		content[name] = string(data)
	}
	return content
}

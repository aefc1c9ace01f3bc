// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// The request log keeps the last requests up to its limit, and fewer if their bodies are large.
func TestRequestLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{RequestLog: 50})
		defer server.Close()
		c := client(t, server.Config(), "", runtime.ContentTypeProtobuf)
		for i := range 200 {
			err := c.Get().Resource("nodes").Name(fmt.Sprint("n", i)).Do(t.Context()).Error()
			require.True(t, apierrors.IsNotFound(err))
		}
		log := server.Requests(apiservertest.Match{})
		require.Len(t, log, 50)
		assert.Equal(t, "n150", log[0].Name)
		assert.Equal(t, 404, log[49].Code)

		large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}, Data: map[string]string{"k": strings.Repeat("x", 2_900_000)}}
		for range 25 {
			require.NoError(t, c.Post().Namespace("default").Resource("configmaps").Body(large).Do(t.Context()).Error())
		}
		log = server.Requests(apiservertest.Match{})
		assert.Len(t, log, 23, "64 MiB have 23 bodies of 2.9 MB")
		server.ForgetRequests()
		assert.Zero(t, server.CountRequests(apiservertest.Match{}))
	})
}

// The server keeps the pages of the last 1,000 lists.
func TestContinueTokensExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		require.NoError(t, server.Put(newPod("a", ""), newPod("b", "")))
		c := client(t, server.Config(), "", runtime.ContentTypeJSON)
		list := func(token string) (corev1.PodList, error) {
			var pods corev1.PodList
			err := c.Get().Resource("pods").Param("limit", "1").Param("continue", token).Do(t.Context()).Into(&pods)
			return pods, err
		}
		first, err := list("")
		require.NoError(t, err)
		var last corev1.PodList
		for range 999 {
			last, err = list("")
			require.NoError(t, err)
		}
		page, err := list(first.Continue)
		require.NoError(t, err)
		assert.Equal(t, "b", page.Items[0].Name)
		_, err = list("")
		require.NoError(t, err)
		_, err = list(first.Continue)
		assert.True(t, apierrors.IsResourceExpired(err), "%v", err)
		_, err = list(last.Continue)
		require.NoError(t, err)
	})
}

func TestInvalidKindPanicsWithTheNameOfTheField(t *testing.T) {
	valid := apiservertest.Kind{Group: "example.com", Version: "v1", Kind: "Widget", Resource: "widgets"}
	for _, c := range []struct {
		name, text string
		change     func(*apiservertest.Kind)
	}{
		{"no group", "Options.Kinds[1]: Group: required", func(k *apiservertest.Kind) { k.Group = "" }},
		{"no resource", "Options.Kinds[1]: Resource: required", func(k *apiservertest.Kind) { k.Resource = "" }},
		{"slash", `Options.Kinds[1]: Version: invalid value "a/b": contains a slash`, func(k *apiservertest.Kind) { k.Version = "a/b" }},
		{"resource of another kind", `Options.Kinds[1]: Resource: duplicate value "widgets" of example.com/v1`, func(k *apiservertest.Kind) { k.Kind = "W" }},
		{"kind of another resource", `Options.Kinds[1]: Kind: duplicate value "Widget" of example.com/v1`, func(k *apiservertest.Kind) { k.Resource = "w" }},
		{"built-in kind", `Options.Kinds[1]: Resource: duplicate value "jobs" of batch/v1`, func(k *apiservertest.Kind) {
			*k = apiservertest.Kind{Group: "batch", Version: "v1", Kind: "Job", Resource: "jobs"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := valid
			c.change(&changed)
			assert.PanicsWithError(t, c.text, func() {
				apiservertest.NewServer(apiservertest.Options{Kinds: []apiservertest.Kind{valid, changed}})
			})
		})
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		require.NoError(t, server.Put(newPod("old", "n1")))
		before := server.ResourceVersion()
		c := client(t, server.Config(), "", runtime.ContentTypeJSON)
		pods := func(r *rest.Request) *rest.Request {
			return r.Namespace("default").Resource("pods").Param("dryRun", metav1.DryRunAll)
		}
		var created, patched corev1.Pod
		require.NoError(t, pods(c.Post()).Body(newPod("new", "n1")).Do(t.Context()).Into(&created))
		assert.NotEmpty(t, created.UID)
		require.NoError(t, pods(c.Patch(types.MergePatchType)).Name("old").Body([]byte(`{"metadata":{"labels":{"k":"v"}}}`)).Do(t.Context()).Into(&patched))
		assert.Equal(t, "v", patched.Labels["k"])
		require.NoError(t, pods(c.Delete()).Name("old").Do(t.Context()).Error())
		require.NoError(t, pods(c.Delete()).Do(t.Context()).Error())
		assert.Equal(t, before, server.ResourceVersion())
		assert.Equal(t, 1, server.CountRequests(apiservertest.Match{Verb: "deletecollection"}))
	})
}

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"fmt"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// pages holds the remaining objects of paginated lists, by continue token. All pages of a list have the same version.
type pages struct {
	mu         sync.Mutex // guards the fields below
	next       int
	remainders map[string]remainder // the last maxPages
}

// maxPages is the number of lists with a continue token that a server keeps. An older token is expired.
const maxPages = 1000

// remainder holds the objects of a list that follow a page, and the resource version of the list.
type remainder struct {
	objects []Object
	version int64
}

// cutPage returns the first objects of a list, at most limit, and a continue token for the remaining objects.
func (p *pages) cutPage(from remainder, limit int) (page []Object, token string) {
	// zero means no limit
	if limit <= 0 || len(from.objects) <= limit {
		return from.objects, ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	delete(p.remainders, fmt.Sprintf("page-%d", p.next-maxPages))
	token = fmt.Sprintf("page-%d", p.next)
	if p.remainders == nil {
		p.remainders = map[string]remainder{}
	}
	p.remainders[token] = remainder{from.objects[limit:], from.version}
	return from.objects[:limit:limit], token
}

// resumeList returns the remaining objects of a paged list, given the continue token of the previous page. ok is false if
// the token has expired.
func (p *pages) resumeList(token string) (rest remainder, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.remainders[token]
	return r, ok
}

// expireAll expires all continue tokens.
func (p *pages) expireAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remainders = nil
}

// listObjects returns the objects that match the selectors of the request. It returns a complete list, or one page if the
// query has a limit.
func (c *call) listObjects() (runtime.Object, error) {
	query := c.r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))
	var from remainder
	if token := query.Get("continue"); token != "" {
		var ok bool
		if from, ok = c.server.pages.resumeList(token); !ok {
			return nil, apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result.")
		}
	} else {
		matches, err := c.parseSelectors()
		if err != nil {
			return nil, err
		}
		from.objects, from.version = c.server.store.listObjects(c.kind.storedKind(), matches)
		if err := checkVersion(query, from.version); err != nil {
			return nil, err
		}
	}
	page, token := c.server.pages.cutPage(from, limit)
	list, err := c.buildList(page, from.version)
	if err != nil {
		return nil, err
	}
	meta, err := apimeta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	meta.SetContinue(token)
	if remaining := int64(len(from.objects) - len(page)); remaining > 0 && query.Get("labelSelector") == "" && query.Get("fieldSelector") == "" {
		meta.SetRemainingItemCount(&remaining)
	}
	if c.encoding.metadataOnly {
		return metadataList(list)
	}
	return list, nil
}

// partialMetadata returns the metadata of an object.
func partialMetadata(obj Object) *metav1.PartialObjectMetadata {
	partial := apimeta.AsPartialObjectMetadata(obj)
	partial.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return partial
}

// metadataList returns a PartialObjectMetadataList with the metadata of the objects in list.
func metadataList(list runtime.Object) (runtime.Object, error) {
	meta, err := apimeta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	out := &metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{
			ResourceVersion: meta.GetResourceVersion(), Continue: meta.GetContinue(), RemainingItemCount: meta.GetRemainingItemCount(),
		},
	}
	return out, apimeta.EachListItem(list, func(o runtime.Object) error {
		out.Items = append(out.Items, *partialMetadata(o.(Object)))
		return nil
	})
}

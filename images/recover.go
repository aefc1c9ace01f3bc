// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/reference"
)

// Recover settles the pulls that an earlier agent did not live to see the end of. An image that is there by now is
// recorded as pulled with credentials that are not known, so that a pod has to show its own; for the others, and until
// Recover is called, the mark that a pull has begun stands for the same. It is called once, before the first Ensure.
// Records that cannot be read are part of the error, and the others are settled.
func (p *Puller) Recover(ctx context.Context) error {
	if p.records == nil {
		return nil
	}
	begun := map[string][]string{} // by their full names, as they stood in containers
	err := each(p.records.pulling, func(_ string, data []byte) error {
		i, err := decodeIntent(data)
		if err != nil {
			return err
		}
		ref, err := reference.Parse(i.Image)
		if err != nil {
			return err
		}
		begun[ref.Identity()] = append(begun[ref.Identity()], i.Image)
		return nil
	})
	if len(begun) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	present, listErr := call(ctx, p, callee[[]cri.Image]{name: "ListImages", key: "ListImages", make: p.images.ListImages})
	if listErr != nil {
		return fmt.Errorf("recover pulls: %w", listErr)
	}
	for _, image := range present {
		for _, name := range slices.Concat(image.RepoDigests, image.RepoTags) {
			ref, parseErr := reference.Parse(name)
			if parseErr != nil {
				continue // it is in no intent either
			}
			for _, as := range begun[ref.Identity()] {
				if err := p.records.settle(as, image.ID, time.Now()); err != nil {
					p.report(fmt.Errorf("recover the pull of image %q: %w", as, err))
				}
			}
		}
	}
	return err
}

// settle turns an intent into a record without credentials.
func (s *records) settle(image, id string, now time.Time) error {
	ref, err := reference.Parse(image)
	if err != nil {
		return err
	}
	return s.succeed(image, ref.Short, id, recordedCredentials{}, now)
}

// Prune removes the records of images that are gone: present are all that there are, listed at the given time. A
// record that was written since then stays. It is to be called after images were removed.
func (p *Puller) Prune(present []cri.Image, listed time.Time) error {
	if p.records == nil {
		return nil
	}
	ids := make(map[string]bool, len(present))
	for _, image := range present {
		ids[image.ID] = true
	}
	return p.records.prune(ids, listed)
}

func (s *records) prune(present map[string]bool, listed time.Time) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	return each(s.pulled, func(path string, data []byte) error {
		r, err := decodePulled(data)
		if err != nil {
			return err
		}
		// The records know whole seconds.
		if present[r.ImageRef] || !r.LastUpdatedTime.Before(listed.Truncate(time.Second)) {
			return nil
		}
		return remove(path)
	})
}

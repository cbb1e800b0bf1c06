// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/inplace"
)

// lookAgain is when a pod is looked at again that changed while it was judged.
const lookAgain = 50 * time.Millisecond

// wholePod is what is known of a pod that is changed in place. The cache keeps too little
// of pods for that: few are, and only for a moment.
type wholePod struct {
	// pod is the whole pod, as the server showed it.
	pod *corev1.Pod
	// template has what its containers are to have, and goal says how much of that.
	template *runtime.RawExtension
	goal     inplace.Goal
	// answers is what the API has answered just now.
	answers inplace.Answers
}

// changer changes pods in place.
type changer struct {
	client   client.Client
	reader   client.Reader
	resolver *resolver
	resizes  *resizes
}

// updateInPlace plans the next step of the update of a sandbox that runs. Until the update has
// succeeded or failed, the sandbox is not ready.
func updateInPlace(o *observation, p *plan) {
	p.setReady(o, metav1.ConditionFalse, v1alpha1.ReasonInplaceUpdating, v1alpha1.InplaceUpdatingMessage)
	if o.inplace == nil {
		p.action = actionInspect
		return
	}
	if why, reverting := inplace.Reverting(o.sandbox); reverting {
		revertResize(o, p, why)
		return
	}
	progress := inplace.ProgressOf(o.inplace.pod, o.inplace.template, o.inplace.goal, o.inplace.answers)
	switch progress.Step {
	case inplace.StepPatch:
		p.resize, p.image = progress.Patch, progress.ImagePatch
	case inplace.StepRevert:
	case inplace.StepWait:
		if progress.IsEnding {
			progress.Message = o.endingMessage(p, progress.Message)
		}
	case inplace.StepDone, inplace.StepFailed:
		p.syncReadiness(o)
	}
	p.setInplaceUpdate(o, progress)
}

// sayEndingAfter is how long a process may take to end before the status says that it has not: most
// end at once, and a write for each would double what a change of the image writes.
const sayEndingAfter = 3 * time.Second

// endingMessage returns the message of a sandbox whose image is changed, and whose process of before has
// not ended.
func (o *observation) endingMessage(p *plan, message string) string {
	update := meta.FindStatusCondition(o.sandbox.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate)
	if p.requeueAfter = update.LastTransitionTime.Add(sayEndingAfter).Sub(o.now); p.requeueAfter > 0 {
		return ""
	}
	p.requeueAfter = 0
	return message
}

// revertResize asks for what the pod has, which the node does not change, and ends the update. The
// condition says so before that, or the next plan would ask for the same again.
func revertResize(o *observation, p *plan, why string) {
	if answers := o.inplace.answers; !answers.Resize && answers.ResizeRefused == "" {
		p.resize = inplace.RevertPatch(o.inplace.pod, o.inplace.template, o.inplace.goal)
	}
	if p.resize == nil {
		p.syncReadiness(o)
		p.setInplaceUpdate(o, inplace.Progress{Step: inplace.StepFailed, Message: why})
	}
}

func (p *plan) setInplaceUpdate(o *observation, progress inplace.Progress) {
	c := progress.Condition()
	p.setCondition(o, c.Type, c.Status, c.Reason, c.Message)
	if c := progress.ImageCondition(); c != nil {
		p.setCondition(o, c.Type, c.Status, c.Reason, c.Message)
	}
}

// inspect looks at the pod of a sandbox that is changed in place, and plans with that.
// From now on every change of the pod brings the sandbox here.
func (c *changer) inspect(ctx context.Context, key types.NamespacedName, o *observation) (plan, error) {
	c.resizes.begin(key)
	pod, err := getPod(ctx, c.reader, key)
	if err != nil {
		return plan{}, err
	}
	o.isFromServer, o.isPodExpected = true, false
	o.pod, o.inplace = nil, nil
	if pod == nil {
		return decide(o), nil
	}
	o.inplace, err = c.inplaceOf(ctx, o.sandbox, pod)
	if err != nil {
		return plan{}, err
	}
	o.pod = trim(pod)
	return decide(o), nil
}

func (c *changer) inplaceOf(ctx context.Context, sandbox *v1alpha1.Sandbox, pod *corev1.Pod) (*wholePod, error) {
	full, err := c.resolver.whole(ctx, sandbox)
	if missing, ok := asTemplateError(err); ok {
		answers := inplace.Answers{ResizeRefused: missing.Error(), ImageRefused: missing.Error()}
		return &wholePod{pod: pod, goal: inplace.GoalOf(sandbox), answers: answers}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("changing Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	return &wholePod{pod: pod, template: full.Spec.Template, goal: inplace.GoalOf(sandbox)}, nil
}

// askInPlace asks the API for what a sandbox is to be given in place: the resources, and
// once these are answered for the image.
func (c *changer) askInPlace(ctx context.Context, key types.NamespacedName, o *observation, p plan) (after plan, requeueAfter time.Duration, err error) {
	if p.resize != nil {
		if p, requeueAfter, err = c.resize(ctx, key, o, p); err != nil {
			return plan{}, 0, err
		}
	}
	if p.image != nil {
		return c.changeImage(ctx, key, o, p)
	}
	return p, requeueAfter, nil
}

// resize asks the API for the resources and returns the plan as it is then, and
// after what time to look again.
//
//	granted           wait for the node, whose answer is an event of the pod
//	refused           the status says so, and the update has ended
//	another version   look again
//	any other error   returned; nothing is known
func (c *changer) resize(ctx context.Context, key types.NamespacedName, o *observation, p plan) (plan, time.Duration, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err := c.client.SubResource("resize").Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, p.resize), fieldOwner)
	switch {
	case err == nil:
		o.inplace.pod, o.inplace.answers.Resize = pod, true
		o.pod = trim(pod)
		return decide(o), 0, nil
	case apierrors.IsConflict(err):
		return p, lookAgain, nil
	case apierrors.IsNotFound(err):
		return c.resizeNotFound(ctx, key, o, err)
	case !isResizeRefusal(err):
		return plan{}, 0, fmt.Errorf("resizing Pod %s: %w", key, err)
	}
	o.inplace.answers.ResizeRefused = err.Error()
	return decide(o), 0, nil
}

// resizeNotFound finds out, after a 404, if the pod is gone or the cluster cannot resize pods.
func (c *changer) resizeNotFound(ctx context.Context, key types.NamespacedName, o *observation, why error) (plan, time.Duration, error) {
	asked := o.pod.UID
	p, err := c.inspect(ctx, key, o)
	if err != nil {
		return plan{}, 0, err
	}
	if o.pod != nil && o.pod.UID == asked {
		o.inplace.answers.ResizeRefused = why.Error()
		p = decide(o)
	}
	return p, 0, nil
}

// changeImage asks the API for the image and returns the plan as it is then, and after
// what time to look again. The answers mean the same as for a resize, except that a pod
// that is not found is gone.
func (c *changer) changeImage(ctx context.Context, key types.NamespacedName, o *observation, p plan) (plan, time.Duration, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err := c.client.Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, p.image), fieldOwner)
	switch {
	case err == nil:
		o.inplace.pod, o.inplace.answers.Image = pod, true
		o.pod = trim(pod)
		return decide(o), 0, nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return p, lookAgain, nil
	case !isResizeRefusal(err):
		return plan{}, 0, fmt.Errorf("changing the image of Pod %s: %w", key, err)
	}
	o.inplace.answers.ImageRefused = err.Error()
	return decide(o), 0, nil
}

// isResizeRefusal reports whether an error is about the request, so that it would not
// be answered otherwise the next time.
func isResizeRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}

// resizes are the sandboxes that are changed in place: what the cache leaves out of their
// pods matters.
type resizes struct {
	mu   sync.Mutex
	keys map[types.NamespacedName]struct{}
}

func newResizes() *resizes { return &resizes{keys: map[types.NamespacedName]struct{}{}} }

func (r *resizes) begin(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys[key] = struct{}{}
}

func (r *resizes) end(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.keys, key)
}

func (r *resizes) has(key types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.keys[key]
	return ok
}

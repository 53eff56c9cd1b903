"""Labels and annotations by which controllers and schedulers name the group of a pod. `groups` reads them.

One list for all that ask which pods belong together: filter, bind, and advice. A further convention is one more entry.
"""

from typing import Final, NamedTuple

PREFIX: Final = "numa-extender.io/"
GROUP: Final = f"{PREFIX}group"
SIZE: Final = f"{PREFIX}group-size"
_LWS: Final = "leaderworkerset.sigs.k8s.io/"
LWS_WORKER: Final = f"{_LWS}worker-index"
LWS_ROLES: Final = ("leadertemplate", "workertemplate")
"""The roles of the first pod of a group of a LeaderWorkerSet, and of the others."""
TASK_GROUPS: Final = "yunikorn.apache.org/task-groups"
_KOORDINATOR, _SIG_GROUP = "gang.scheduling.koordinator.sh/", "pod-group.scheduling.sigs.k8s.io"


class Convention(NamedTuple):
    """`annotations`, `labels`: the first one that the pod has is the group's name.

    `part`: a label whose value belongs to the name as well. `only_with`: an annotation without which the pod is in no
    group. `sizes`: annotations or labels with the number of pods. `object_kind`: the kind of object that states the
    size if the pod does not; "" if there is none. `maker`: the kind of another object, which makes the pods and has
    their templates, and the label with its name.
    """

    kind: str
    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    part: str = ""
    only_with: str = ""
    sizes: tuple[str, ...] = ()
    object_kind: str = ""
    maker: tuple[str, str] = ("", "")


CONVENTIONS: Final = (
    Convention("coscheduling", labels=("scheduling.x-k8s.io/pod-group",), object_kind="PodGroup"),
    Convention(
        "koordinator",
        labels=(f"{_SIG_GROUP}/name", _SIG_GROUP),
        annotations=(f"{_KOORDINATOR}name",),
        sizes=(f"{_KOORDINATOR}min-available", f"{_SIG_GROUP}/min-available"),
        object_kind="PodGroup",
    ),
    Convention(
        "volcano",
        labels=("volcano.sh/job-name",),
        annotations=("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"),
        object_kind="PodGroup",
        maker=("volcano_job", "volcano.sh/job-name"),
    ),
    Convention(
        "yunikorn",
        labels=("yunikorn.apache.org/app-id", "applicationId"),
        annotations=("yunikorn.apache.org/app-id",),
        only_with="yunikorn.apache.org/task-group-name",
        sizes=(TASK_GROUPS,),
    ),
    Convention("grove", labels=("grove.io/podgang",), object_kind="PodGang"),
    Convention("kai", annotations=("pod-group-name",), object_kind="PodGroup"),
    Convention(
        "leader_worker_set",
        labels=(f"{_LWS}group-key",),
        sizes=(f"{_LWS}size",),
        maker=("leader_worker_set", f"{_LWS}name"),
    ),
    Convention(
        "job_set",
        labels=("jobset.sigs.k8s.io/jobset-name",),
        part="jobset.sigs.k8s.io/restart-attempt",
        object_kind="JobSet",
    ),
    Convention("kueue", labels=("kueue.x-k8s.io/pod-group-name",), sizes=("kueue.x-k8s.io/pod-group-total-count",)),
    Convention("training_job", labels=("training.kubeflow.org/job-name",), object_kind="training job"),
    Convention("ray_cluster", labels=("ray.io/cluster",), object_kind="RayCluster"),
)
"""In the order in which they count: a scheduler's group before that of the controller which made the pod."""
ROLES: Final = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",
    "ray.io/group",
    "volcano.sh/task-spec",
)
"""Labels with the role of a pod in the object that its controller makes it from."""
RAY_TYPE: Final = "ray.io/node-type"
RAY_HEAD: Final = "headgroupspec"
"""The role of a RayCluster's head, whose label `ray.io/group` is not in the object."""

------------------------------- MODULE registry -------------------------------
(* The registrations and removals of brokers in a NameServer's table, and the responses to a client that watches.

   One server, brokers that each have at most one connection open, and one client. The model leaves out topics (a
   broker's last registration stands for its route), slaves, snapshots, limits and access rules.

   The server reads each connection in order. Registrations and removals then wait for one lock, in order of arrival;
   heartbeats and unchanged registrations do not (namesrv.routeinfo.manager), so that they may be applied while a
   removal is planned. *)
EXTENDS FiniteSets, Naturals, Sequences, TLC

CONSTANTS
    Brokers,
    Connections,  \* 1..n: later connections have higher numbers, and no number is used twice
    Epochs,       \* number of changed registrations of a broker
    Boots,        \* number of boots of the server
    Watched,      \* TRUE: the model has a client
    Planted       \* the fault of the server, "nothing" for a correct server

VARIABLES
    epoch,      \* the number of each broker's last registration
    speaks_on,  \* the connection over which each broker believes to be registered, and sends heartbeats
    owner,      \* the broker of each connection
    dialled,    \* the brokers' end of each connection: "unused", "open" or "closed"
    wire,       \* the unread messages of each connection
    connected,  \* TRUE: the server's end of the connection is open
    live,       \* the table: each broker's registration, its connection, and whether it is overdue
    carriers,   \* other open connections over which each broker has sent a request
    waiting,    \* the changes that wait for the lock
    removal,    \* the removal that is being planned under the lock
    wrong,      \* the reason of an outdated removal that was applied
    boot,
    revision,   \* number of changes since the server's start
    changed,    \* the revision of the last change of each broker's route
    client,     \* the client's state
    answer,     \* the response that is on its way to the client
    went_back   \* TRUE: a response was older than the client's state

brokers == <<epoch, speaks_on>>
network == <<owner, dialled, wire>>
tables == <<live, carriers, revision, changed>>
server == <<connected, waiting, removal, wrong, boot>>
watcher == <<client, answer, went_back>>
variables == <<brokers, network, tables, server, watcher>>

None == 0
NoEntry == [epoch |-> 0, on |-> None, overdue |-> FALSE]
NoRemoval == [reason |-> "none", broker |-> None, on |-> None, refreshed |-> FALSE, anew |-> FALSE]
NoAnswer == [boot |-> None, revision |-> 0, routes |-> <<>>]
Symmetry == Permutations(Brokers)

Init ==
    /\ epoch = [b \in Brokers |-> 0]
    /\ speaks_on = [b \in Brokers |-> None]
    /\ owner = [c \in Connections |-> None]
    /\ dialled = [c \in Connections |-> "unused"]
    /\ wire = [c \in Connections |-> <<>>]
    /\ connected = [c \in Connections |-> FALSE]
    /\ live = [b \in Brokers |-> NoEntry]
    /\ carriers = [b \in Brokers |-> {}]
    /\ waiting = <<>>
    /\ removal = NoRemoval
    /\ wrong = "nothing"
    /\ boot = 1
    /\ revision = 0
    /\ changed = [b \in Brokers |-> 0]
    /\ client = [boot |-> None, revision |-> 0, routes |-> [b \in Brokers |-> 0]]
    /\ answer = NoAnswer
    /\ went_back = FALSE

Highest(S) == CHOOSE x \in S : \A y \in S : y <= x
IsIn(b) == live[b].epoch > 0
IsFree == removal.reason = "none"
\* The broker believes to be registered, and its messages arrive.
Reaches(b) == speaks_on[b] # None /\ connected[speaks_on[b]]

-------------------------------------------------------------------------------
(* Brokers and the network. A broker that dies is one whose connection ends. *)

Open(b) == {c \in Connections : owner[c] = b /\ dialled[c] = "open"}

Dial(b) ==
    /\ Open(b) = {} /\ epoch[b] < Epochs
    /\ \E c \in Connections :
        /\ dialled[c] = "unused" /\ \A other \in Connections : other < c => dialled[other] # "unused"
        /\ dialled' = [dialled EXCEPT ![c] = "open"]
        /\ owner' = [owner EXCEPT ![c] = b]
        /\ connected' = [connected EXCEPT ![c] = TRUE]
    /\ UNCHANGED <<brokers, wire, tables, waiting, removal, wrong, boot, watcher>>

Send(kind, b, c, number) ==
    /\ wire[c] = <<>>
    /\ wire' = [wire EXCEPT ![c] = Append(@, [kind |-> kind, broker |-> b, epoch |-> number, on |-> c])]

Register(b, c, number) ==
    /\ number \in 1..Epochs
    /\ Send("register", b, c, number)
    /\ epoch' = [epoch EXCEPT ![b] = number]
    /\ speaks_on' = [speaks_on EXCEPT ![b] = c]
    /\ UNCHANGED <<owner, dialled, tables, server, watcher>>

Unregister(b, c) ==
    /\ speaks_on[b] = c
    /\ Send("unregister", b, c, epoch[b])
    /\ speaks_on' = [speaks_on EXCEPT ![b] = None]
    /\ UNCHANGED <<epoch, owner, dialled, tables, server, watcher>>

\* The broker closes the connection, or loses it with unread messages. The server notices either later.
End(b, c) ==
    /\ dialled' = [dialled EXCEPT ![c] = "closed"]
    /\ wire' \in {wire, [wire EXCEPT ![c] = <<>>]}
    /\ speaks_on' = [speaks_on EXCEPT ![b] = None]
    /\ UNCHANGED <<epoch, owner, tables, server, watcher>>

Broker(b) ==
    \/ Dial(b)
    \/ \E c \in Open(b) :
        Register(b, c, epoch[b] + 1) \/ Register(b, c, epoch[b]) \/ Unregister(b, c) \/ End(b, c)

-------------------------------------------------------------------------------
(* The server reads. *)

\* A heartbeat does not wait for the lock.
Heartbeat(b) ==
    /\ speaks_on[b] # None
    /\ LET c == speaks_on[b]
           moves == live[b].on # c /\ ~connected[live[b].on]
       IN /\ connected[c] /\ wire[c] = <<>> /\ IsIn(b)
          /\ live' = [live EXCEPT ![b] = [@ EXCEPT !.overdue = FALSE, !.on = IF moves THEN c ELSE @]]
          /\ carriers' = [carriers EXCEPT ![b] = IF moves \/ live[b].on = c THEN @ ELSE @ \union {c}]
          /\ removal' = [removal EXCEPT !.refreshed = @ \/ removal.broker = b]
    /\ UNCHANGED <<brokers, network, revision, changed, connected, waiting, wrong, boot, watcher>>

IsWaiting(kind, b) == \E i \in 1..Len(waiting) : waiting[i].kind = kind /\ waiting[i].broker = b

SaysNothingNew(request) ==
    /\ request.kind = "register"
    /\ live[request.broker].epoch = request.epoch
    /\ live[request.broker].on <= request.on
    /\ ~IsWaiting("unregister", request.broker) \/ Planted = "unregister overtaken"

\* An unchanged registration does not wait for the lock, either.
RegisterUnchanged(request) ==
    LET b == request.broker
        before == live[b].on
    IN /\ live' = [live EXCEPT ![b] = [@ EXCEPT !.overdue = FALSE, !.on = request.on]]
       /\ carriers' = [carriers EXCEPT ![b] =
            IF before # request.on /\ connected[before] THEN @ \union {before} ELSE @]
       /\ removal' = [removal EXCEPT !.refreshed = @ \/ removal.broker = b, !.anew = @ \/ removal.broker = b]
       /\ UNCHANGED waiting

Wait(request) ==
    /\ Len(waiting) < 3
    /\ waiting' = Append(waiting, request)
    /\ UNCHANGED <<live, carriers, removal>>

Read(c) ==
    /\ connected[c] /\ wire[c] # <<>>
    /\ wire' = [wire EXCEPT ![c] = Tail(@)]
    /\ IF SaysNothingNew(Head(wire[c])) THEN RegisterUnchanged(Head(wire[c])) ELSE Wait(Head(wire[c]))
    /\ UNCHANGED <<brokers, owner, dialled, revision, changed, connected, wrong, boot, watcher>>

\* Brokers of a closed connection move back to another open connection of theirs; those without one are removed.
ReadEnd(c) ==
    /\ connected[c] /\ wire[c] = <<>> /\ dialled[c] = "closed" /\ Len(waiting) < 3
    /\ connected' = [connected EXCEPT ![c] = FALSE]
    /\ carriers' = [b \in Brokers |-> carriers[b] \ {c}]
    /\ live' = [b \in Brokers |->
        IF live[b].on # c \/ carriers[b] \ {c} = {} THEN live[b]
        ELSE [live[b] EXCEPT !.on = Highest(carriers[b] \ {c})]]
    /\ waiting' = Append(waiting, [kind |-> "closed", broker |-> None, epoch |-> 0, on |-> c])
    /\ UNCHANGED <<brokers, network, revision, changed, removal, wrong, boot, watcher>>

-------------------------------------------------------------------------------
(* The server changes the table, one change at a time. *)

Change(b) ==
    IF Watched THEN revision' = revision + 1 /\ changed' = [changed EXCEPT ![b] = revision + 1]
    ELSE UNCHANGED <<revision, changed>>

Work(kind) == IsFree /\ waiting # <<>> /\ Head(waiting).kind = kind

Begin(reason, b, c) ==
    removal' = [reason |-> reason, broker |-> b, on |-> c, refreshed |-> FALSE, anew |-> FALSE]

\* A large registration takes long to decode, and later changes may be applied first.
Decode ==
    /\ Len(waiting) > 1 /\ Head(waiting).kind = "register"
    /\ waiting' = Append(Tail(waiting), Head(waiting))
    /\ UNCHANGED <<brokers, network, tables, connected, removal, wrong, boot, watcher>>

WorkOnRegistration ==
    /\ Work("register")
    /\ waiting' = Tail(waiting)
    /\ LET b == Head(waiting).broker
           c == Head(waiting).on
           before == live[b]
           \* A registration over a newer connection was applied first.
           on == IF IsIn(b) /\ before.on > c /\ connected[before.on] THEN before.on ELSE c
           is_older == before.epoch > Head(waiting).epoch /\ Planted # "older registration taken"
           has_ended == ~connected[c] /\ Planted # "registered after its end"
       IN IF is_older \/ has_ended THEN UNCHANGED tables
          ELSE /\ live' = [live EXCEPT ![b] = [epoch |-> Head(waiting).epoch, on |-> on, overdue |-> FALSE]]
               /\ carriers' = [carriers EXCEPT ![b] =
                    {other \in @ \union {before.on, c} : other # None /\ other # on /\ connected[other]}]
               /\ Change(b)
    /\ UNCHANGED <<brokers, network, connected, removal, wrong, boot, watcher>>

WorkOnUnregistration ==
    /\ Work("unregister")
    /\ waiting' = Tail(waiting)
    /\ LET b == Head(waiting).broker
           is_stale == live[b].on > Head(waiting).on \/ live[b].epoch > Head(waiting).epoch
       IN IF IsIn(b) /\ (~is_stale \/ Planted = "stale unregister taken") THEN
            /\ Begin("unregistered", b, Head(waiting).on)
            /\ wrong' = (IF is_stale THEN "unregistered" ELSE wrong)
          ELSE UNCHANGED <<removal, wrong>>
    /\ UNCHANGED <<brokers, network, tables, connected, boot, watcher>>

WorkOnEnd ==
    /\ Work("closed")
    /\ LET c == Head(waiting).on
           left == {b \in Brokers : IsIn(b) /\ live[b].on = c}
       IN IF left = {} THEN waiting' = Tail(waiting) /\ UNCHANGED removal
          ELSE UNCHANGED waiting /\ \E b \in left : Begin("disconnected", b, c)
    /\ UNCHANGED <<brokers, network, tables, connected, wrong, boot, watcher>>

Scan(b) ==
    /\ IsFree /\ IsIn(b) /\ live[b].overdue
    /\ Begin("silent", b, live[b].on)
    /\ UNCHANGED <<brokers, network, tables, connected, waiting, wrong, boot, watcher>>

\* A planned removal is applied if the broker's entry is still the one that it was planned for.
Remove ==
    /\ ~IsFree
    /\ LET b == removal.broker
           is_outdated ==
               \/ removal.reason = "silent" /\ removal.refreshed
               \/ removal.reason = "disconnected" /\ live[b].on # removal.on
               \/ removal.reason = "unregistered" /\ removal.anew
       IN IF is_outdated /\ Planted # "no fence" THEN UNCHANGED <<tables, wrong>>
          ELSE /\ live' = [live EXCEPT ![b] = NoEntry]
               /\ carriers' = [carriers EXCEPT ![b] = {}]
               /\ wrong' = (IF is_outdated THEN removal.reason ELSE wrong)
               /\ IF Planted = "removal not counted" THEN UNCHANGED <<revision, changed>> ELSE Change(b)
    /\ removal' = NoRemoval
    /\ UNCHANGED <<brokers, network, connected, waiting, boot, watcher>>

\* The expiry of a broker is over. A broker that reaches the server has sent heartbeats, and the server reads all that
\* has arrived before the scan.
TimePasses(b) ==
    /\ IsIn(b) /\ ~live[b].overdue
    /\ ~Reaches(b)
    /\ \A c \in Connections : connected[c] /\ owner[c] = b => wire[c] = <<>>
    /\ ~IsWaiting("register", b)
    /\ live' = [live EXCEPT ![b].overdue = TRUE]
    /\ UNCHANGED <<brokers, network, carriers, revision, changed, server, watcher>>

\* The server is killed and restarted: tables and connections are lost.
Restart ==
    /\ boot < Boots
    /\ boot' = boot + 1
    /\ live' = [b \in Brokers |-> NoEntry]
    /\ carriers' = [b \in Brokers |-> {}]
    /\ connected' = [c \in Connections |-> FALSE]
    /\ dialled' = [c \in Connections |-> IF dialled[c] = "open" THEN "closed" ELSE dialled[c]]
    /\ speaks_on' = [b \in Brokers |-> None]
    /\ wire' = [c \in Connections |-> <<>>]
    /\ waiting' = <<>>
    /\ removal' = NoRemoval
    /\ revision' = 0
    /\ changed' = [b \in Brokers |-> 0]
    /\ answer' = NoAnswer
    /\ UNCHANGED <<epoch, owner, wrong, client, went_back>>

-------------------------------------------------------------------------------
(* The client waits for changes after the last one that it knows of, and the answer takes its time. *)

BootId == IF Planted = "boot id used again" THEN 1 ELSE boot

Answer ==
    /\ Watched /\ answer.boot = None
    /\ LET is_full == client.boot # BootId \/ client.revision > revision
           sent == {b \in Brokers : is_full \/ changed[b] > client.revision}
       IN /\ sent # {}
          /\ answer' = [boot |-> BootId, revision |-> revision, routes |-> [b \in sent |-> live[b].epoch]]
    /\ UNCHANGED <<brokers, network, tables, server, client, went_back>>

Notified ==
    /\ answer.boot # None
    /\ went_back' = (went_back \/ (answer.boot = client.boot /\ answer.revision < client.revision))
    /\ client' = [boot |-> answer.boot, revision |-> answer.revision,
                  routes |-> [b \in Brokers |->
                      IF b \in DOMAIN answer.routes THEN answer.routes[b] ELSE client.routes[b]]]
    /\ answer' = NoAnswer
    /\ UNCHANGED <<brokers, network, tables, server>>

Next ==
    \/ \E b \in Brokers : Broker(b) \/ Heartbeat(b) \/ TimePasses(b) \/ Scan(b)
    \/ \E c \in Connections : Read(c) \/ ReadEnd(c)
    \/ Decode \/ WorkOnRegistration \/ WorkOnUnregistration \/ WorkOnEnd \/ Remove
    \/ Restart \/ Answer \/ Notified

Spec == Init /\ [][Next]_variables

-------------------------------------------------------------------------------
\* Bounds of the states with a client, whose revisions would grow without end.
FewChanges == revision <= 2

-------------------------------------------------------------------------------
(* What always holds; tests/simulation checks the same of the real code, under the same names. *)

IsQuiet == IsFree /\ waiting = <<>> /\ \A c \in Connections : connected[c] => wire[c] = <<>>

NoLiveBrokerEvicted == wrong # "silent"

NoRemovalOfNewerRegistration == wrong \notin {"disconnected", "unregistered"}

\* When everything is read, every broker that believes to be registered is in the table, as it registered last.
TablesEqualTruth ==
    IsQuiet => \A b \in Brokers : Reaches(b) => live[b].epoch = epoch[b]

\* Every broker in the table is on an open connection, whose end or silence will remove it.
NoDeadBrokerKept == IsQuiet => \A b \in Brokers : IsIn(b) => connected[live[b].on]

RevisionNeverBack == ~went_back

WatchLosesNothing ==
    client.boot = boot /\ client.revision = revision => \A b \in Brokers : client.routes[b] = live[b].epoch
===============================================================================
